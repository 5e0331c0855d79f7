#pragma once
/// @file
/// Tables with a value for each stage and micro-batch, or for each message between stages.

#include <cstddef>
#include <vector>

#include "parallel/schedule/schedule.h"

namespace stagecoach {

/// [stages, microbatches]; all values are initially `T{}`.
template <class T>
class Grid {
 public:
  Grid(int stages, int microbatches)
      : microbatches_(static_cast<std::size_t>(microbatches)),
        values_(static_cast<std::size_t>(stages) * microbatches_) {}
  T& at(int stage, int microbatch) { return values_[index(stage, microbatch)]; }
  const T& at(int stage, int microbatch) const { return values_[index(stage, microbatch)]; }

 private:
  std::size_t index(int stage, int microbatch) const {
    return static_cast<std::size_t>(stage) * microbatches_ + static_cast<std::size_t>(microbatch);
  }

  std::size_t microbatches_;
  std::vector<T> values_;
};

/// A value for each message. The receive identifies the message: RECV_F receives the input of its stage, RECV_B the
/// gradient of its output.
template <class T>
class MessageGrid {
 public:
  explicit MessageGrid(const Schedule& schedule)
      : forward_(schedule.stage_count(), schedule.microbatches),
        backward_(schedule.stage_count(), schedule.microbatches) {}
  T& at(const Action& receive) {
    return (goes_forward(receive) ? forward_ : backward_).at(receive.stage, receive.microbatch);
  }
  const T& at(const Action& receive) const {
    return (goes_forward(receive) ? forward_ : backward_).at(receive.stage, receive.microbatch);
  }

 private:
  static bool goes_forward(const Action& receive) { return receive.operation == Operation::receive_forward; }

  Grid<T> forward_;
  Grid<T> backward_;
};

}  // namespace stagecoach
