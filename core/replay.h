#pragma once
/// @file
/// Replays work that is identical each time, such as a training step. Launching an operation on a GPU takes some
/// microseconds, and small operations take no longer than that themselves. A recorded step is launched as a whole.

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/tensor.h"

namespace stagecoach {

/// Runs work on a GPU from a recording of an earlier run (a CUDA graph). On a CPU, or if disabled, it simply runs the
/// work.
class Replay {
 public:
  using Work = std::function<void(std::span<const Tensor> inputs)>;

  Replay(Device device, bool enabled);
  ~Replay();
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  /// Runs `work(inputs)`. For each set of shapes and types of the inputs, the first run is an ordinary one, the second
  /// is recorded, and later ones are replayed on copies of their inputs, without a call of `work`.
  ///
  /// Therefore `work` must do the same each time (numbers from the CPU are those of the recording), keep what it reads
  /// and writes in tensors that outlive this object, and not wait for the device (item() and copies to the CPU throw).
  void run(const std::vector<Tensor>& inputs, const Work& work);

 private:
  struct Recording;
  Recording& recording_of(const std::vector<Tensor>& inputs);

  Device device_;
  bool enabled_;
  std::vector<std::unique_ptr<Recording>> recordings_;
};

}  // namespace stagecoach
