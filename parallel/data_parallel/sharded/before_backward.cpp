#include "parallel/data_parallel/sharded/before_backward.h"

#include <utility>

#include "core/autograd/node.h"

namespace stagecoach {
namespace {

class CallNode final : public Node {
 public:
  CallNode(const Tensor& y, std::function<void()> call) : Node("before_backward", {y}), call_(std::move(call)) {}
  Gradients backward(const Tensor& grad, const NeedsInputGrad&) override {
    call_();
    return {grad};
  }

 private:
  std::function<void()> call_;
};

}  // namespace

Tensor before_backward(const Tensor& y, std::function<void()> call) {
  return recorded<CallNode>(y.detach(), {&y}, y, std::move(call));
}

}  // namespace stagecoach
