// Sums of activations' gradients that ranks make while they compute the gradients of weights.

#include "parallel/tensor_parallel/overlap.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/autograd/backward.h"
#include "core/autograd/node.h"
#include "core/ops.h"
#include "parallel/launch/launch.h"
#include "tests/parallel/worlds.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::random_tensor;
using test::same_bytes;

/// A layer that looks, while it computes the gradient of its weights, whether the sum of the ranks' gradients of x is
/// there: once a later job of the communication thread has ended.
class WatchingNode final : public Node {
 public:
  WatchingNode(const Tensor& x, const Tensor& weight, CommThread& comm_thread, float& seen)
      : Node("watching", {x, weight}), comm_thread_(comm_thread), seen_(seen) {}
  Gradients backward(const Tensor& grad, const NeedsInputGrad& needs_input_grad) override {
    Gradients gradients(2);
    if (needs_input_grad[0]) {
      grad_x_ = grad.clone();
      gradients[0] = grad_x_;
    }
    if (needs_input_grad[1]) {
      gradients[1] = grad.clone();
      comm_thread_.submit("later", [](Communicator&) {}).wait();
      seen_ = grad_x_.to_vector<float>()[0];
    }
    return gradients;
  }

 private:
  CommThread& comm_thread_;
  float& seen_;
  Tensor grad_x_;
};

TEST(OverlappedSum, IsMadeWhileTheWeightsGradientIsComputed) {
  STAGECOACH_NEEDS_RANKS(2);
  launch(test::world_of(2), [](Rank& rank) {
    CommThread comm_thread(rank.comm);
    float seen = 0;
    Tensor x = Tensor::zeros({1}, DType::float32, rank.device);
    Tensor weight = Tensor::zeros({1}, DType::float32, rank.device);
    x.set_requires_grad(true);
    weight.set_requires_grad(true);
    Tensor y = Tensor::zeros({1}, DType::float32, rank.device);
    y.set_grad_node(std::make_shared<WatchingNode>(x, weight, comm_thread, seen));
    y = with_overlapped_sum(y, &comm_thread);
    backward(y, Tensor::full({1}, rank.index + 1, DType::float32, rank.device));
    EXPECT_EQ(seen, 3) << "1 + 2";
    EXPECT_EQ(x.grad().to_vector<float>(), std::vector<float>{3});
    EXPECT_EQ(weight.grad().to_vector<float>(), std::vector<float>{static_cast<float>(rank.index + 1)});
  });
}

TEST(OverlappedSum, RunsItsPartsApartToo) {
  STAGECOACH_NEEDS_RANKS(2);
  launch(test::world_of(2), [](Rank& rank) {
    CommThread comm_thread(rank.comm);
    const auto gradients_of = [&](bool apart) {
      Tensor x = random_tensor({3, 4}, "x", DType::float32, rank.device);
      Tensor weight = random_tensor({2, 4}, "weight", DType::float32, rank.device);
      x.set_requires_grad(true);
      weight.set_requires_grad(true);
      const Tensor y = with_overlapped_sum(linear(x, weight), &comm_thread);
      const Tensor grad = random_tensor({3, 2}, "grad", DType::float32, rank.device);
      if (apart) {
        backward_inputs(y, grad, {&x, 1}).run();
      } else {
        backward(y, grad);
      }
      return std::pair(x.grad(), weight.grad());
    };
    const auto together = gradients_of(false);
    const auto apart = gradients_of(true);
    EXPECT_TRUE(same_bytes(together.first, apart.first));
    EXPECT_TRUE(same_bytes(together.second, apart.second));
  });
}

TEST(OverlappedSum, FreesWhatTheLayerHasSaved) {
  STAGECOACH_NEEDS_RANKS(1);
  launch(test::world_of(1), [](Rank& rank) {
    CommThread comm_thread(rank.comm);
    Tensor x = random_tensor({3, 4}, "x", DType::float32, rank.device);
    Tensor weight = random_tensor({2, 4}, "weight", DType::float32, rank.device);
    x.set_requires_grad(true);
    weight.set_requires_grad(true);
    const Tensor y = linear(x, weight);
    const std::shared_ptr<Node> layer = y.grad_node();
    backward(with_overlapped_sum(y, &comm_thread), random_tensor({3, 2}, "grad", DType::float32, rank.device));
    EXPECT_TRUE(layer->released());
    EXPECT_TRUE(layer->saved().empty());
  });
}

}  // namespace
}  // namespace stagecoach
