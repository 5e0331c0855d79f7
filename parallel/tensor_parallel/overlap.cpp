#include "parallel/tensor_parallel/overlap.h"

#include <memory>
#include <optional>
#include <utility>

#include "core/autograd/node.h"

namespace stagecoach {
namespace {

/// Runs the backward of another node in two parts, with the all-reduce beside the second.
class OverlappedSumNode final : public Node {
 public:
  OverlappedSumNode(std::shared_ptr<Node> layer, CommThread* comm_thread)
      : Node(InPlaceOf{*layer}), layer_(std::move(layer)), comm_thread_(comm_thread) {}

  Gradients backward(const Tensor& grad, const NeedsInputGrad& needs_input_grad) override {
    NeedsInputGrad parameters = needs_input_grad;
    parameters[0] = false;
    std::optional<CommThread::Pending> sum;
    Tensor grad_x;
    if (needs_input_grad[0]) {
      NeedsInputGrad input(needs_input_grad.size(), false);
      input[0] = true;
      grad_x = layer_->backward(grad, input)[0];
      if (comm_thread_ != nullptr) {
        sum = comm_thread_->submit("all_reduce", [grad_x](Communicator& comm) mutable { comm.all_reduce(grad_x); });
      }
    }
    Gradients gradients(needs_input_grad.size());
    if (parameters != NeedsInputGrad(parameters.size(), false)) {
      gradients = layer_->backward(grad, parameters);
    }
    if (sum) {
      sum->wait();
    }
    gradients[0] = std::move(grad_x);
    return gradients;
  }
  void release() override {
    Node::release();
    layer_->release();
  }

 private:
  std::shared_ptr<Node> layer_;
  CommThread* comm_thread_;
};

}  // namespace

Tensor with_overlapped_sum(Tensor y, CommThread* comm_thread) {
  const std::shared_ptr<Node> layer = y.grad_node();
  if (layer != nullptr && layer->edges()[0].needs_grad()) {
    y.set_grad_node(std::make_shared<OverlappedSumNode>(layer, comm_thread));
  }
  return y;
}

}  // namespace stagecoach
