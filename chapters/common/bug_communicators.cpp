#include "chapters/common/bug_communicators.h"

#include "parallel/comm/passing_communicator.h"

namespace stagecoach {
namespace {

/// Bug::send_order: a send returns when its receiver has the message.
class WaitingSends final : public PassingCommunicator {
 public:
  using PassingCommunicator::PassingCommunicator;
  PendingSend send_async(const Tensor& tensor, int to, int tag) override {
    const PendingSend pending = PassingCommunicator::send_async(tensor, to, tag);
    pending.wait();
    return pending;
  }
};

/// Bug::tag_twice: activations have one tag, and gradients another, whatever their stage and micro-batch. (The
/// chapters' tags are even for activations and odd for gradients.)
class OneTagPerDirection final : public PassingCommunicator {
 public:
  using PassingCommunicator::PassingCommunicator;
  PendingSend send_async(const Tensor& tensor, int to, int tag) override {
    return PassingCommunicator::send_async(tensor, to, tag % 2);
  }
  PendingReceive receive_async(const Shape& shape, DType dtype, int from, int tag) override {
    return PassingCommunicator::receive_async(shape, dtype, from, tag % 2);
  }
};

}  // namespace

std::unique_ptr<Communicator> communicator_with(Bug bug, Communicator& comm) {
  switch (bug) {
    case Bug::send_order:
      return std::make_unique<WaitingSends>(comm);
    case Bug::tag_twice:
      return std::make_unique<OneTagPerDirection>(comm);
    default:
      return nullptr;
  }
}

}  // namespace stagecoach
