#pragma once
/// @file
/// The messages between the stages of a pipeline with one stage per rank, for a program that runs its stage by hand.

#include <cstdint>
#include <vector>

#include "core/tensor.h"
#include "parallel/comm/communicator.h"
#include "parallel/schedule/schedule.h"

namespace stagecoach {

/// One rank's messages of a batch. Stage s is on rank s: activations go to the next rank, and their gradients come back
/// from it. Each message has a tag of its own, even for activations and odd for gradients.
class StageMessages {
 public:
  /// `entering` is the input shape of each stage for one sample, [1, …], and `sizes` has the number of samples of each
  /// micro-batch. All three must outlive the messages.
  StageMessages(Communicator& comm, const std::vector<Shape>& entering, const std::vector<std::int64_t>& sizes)
      : comm_(comm), entering_(entering), sizes_(sizes) {}

  bool is_first() const { return comm_.rank() == 0; }
  bool is_last() const { return comm_.rank() + 1 == comm_.size(); }

  /// Waits for the activations of a micro-batch, the output of the stage before: [n, …].
  Tensor receive_forward(int i) { return receive(Operation::forward, i, comm_.rank(), comm_.rank() - 1); }
  /// Sends this stage's output to the stage after it, and does not wait.
  void send_forward(int i, const Tensor& y) { send(Operation::forward, i, y, comm_.rank() + 1); }
  /// Waits for the gradient of this stage's output, which has the shape of the next stage's input.
  Tensor receive_backward(int i) { return receive(Operation::backward, i, comm_.rank() + 1, comm_.rank() + 1); }
  /// Sends the gradient of this stage's input to the stage before, and does not wait.
  void send_backward(int i, const Tensor& grad_x) { send(Operation::backward, i, grad_x, comm_.rank() - 1); }
  /// Waits until the other ranks have all that was sent.
  void wait_for_sends();

 private:
  static int tag(Operation computation, int microbatch);
  Tensor receive(Operation computation, int microbatch, int entered, int from);
  void send(Operation computation, int microbatch, const Tensor& tensor, int to);

  Communicator& comm_;
  const std::vector<Shape>& entering_;
  const std::vector<std::int64_t>& sizes_;
  std::vector<PendingSend> sends_;
};

}  // namespace stagecoach
