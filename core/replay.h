#pragma once
/// @file
/// Work that is the same again and again, such as a training step. A GPU needs some microseconds to be given each
/// operation, and small ones do not take longer themselves. Recorded as a whole, a step is given to it at once.

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/tensor.h"

namespace stagecoach {

/// Runs the work on a GPU from the recording of an earlier run (a CUDA graph). On a CPU, or switched off, it just runs.
class Replay {
 public:
  using Work = std::function<void(std::span<const Tensor> inputs)>;

  Replay(Device device, bool enabled);
  ~Replay();
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  /// Runs `work(inputs)`. For each set of shapes and types of the inputs the first is an ordinary run, the second is
  /// recorded, and the later ones are replayed, on copies of their inputs: then `work` itself is not called.
  ///
  /// So it must do the same each time (numbers from the CPU are those of the recording), keep what it reads and writes
  /// in tensors that outlive this object, and not wait for the device (no item(), no copy to the CPU; that throws).
  void run(const std::vector<Tensor>& inputs, const Work& work);

 private:
  struct Recording;
  Recording& recording_of(const std::vector<Tensor>& inputs);

  Device device_;
  bool enabled_;
  std::vector<std::unique_ptr<Recording>> recordings_;
};

}  // namespace stagecoach
