// Hooks: data parallel training starts to send a gradient when its leaf's last contribution has arrived.

#include <gtest/gtest.h>

#include <string>

#include "core/autograd/backward.h"
#include "core/ops.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::random_leaf;
using test::random_tensor;
using test::same_bytes;

/// Writes down which leaf's hook was called, and what the gradient was then.
struct Log {
  std::vector<std::string> names;
  std::vector<Tensor> gradients;
  Tensor watched(const Shape& shape, const std::string& name) {
    Tensor leaf = random_leaf(shape, name);
    leaf.set_gradient_hook([this, name](Tensor& mine) {
      names.push_back(name);
      gradients.push_back(mine.grad().clone());
    });
    return leaf;
  }
};
using Names = std::vector<std::string>;

TEST(GradientHook, OnceABackwardInTheOrderOfTheWalk) {
  Log log;
  const Tensor w1 = log.watched({4, 3}, "w1");
  const Tensor b1 = log.watched({4}, "b1");
  const Tensor w2 = log.watched({2, 4}, "w2");
  const Tensor x = random_tensor({5, 3}, "x");
  for (int round = 1; round <= 2; ++round) {
    backward(linear(relu(linear(x, w1, b1)), w2), random_tensor({5, 2}, "g"));
    EXPECT_EQ(log.names, (Names{"w2", "w1", "b1"})) << "round " << round;
    EXPECT_TRUE(same_bytes(log.gradients.back(), b1.grad()));
    log.names.clear();
  }
}

TEST(GradientHook, AfterTheLastContributionToASharedLeaf) {
  Log log;
  const Tensor shared = log.watched({3, 3}, "shared");
  const Tensor between = log.watched({3, 3}, "between");
  const Tensor x = random_tensor({5, 3}, "x");
  backward(linear(linear(linear(x, shared), between), shared), random_tensor({5, 3}, "g"));
  EXPECT_EQ(log.names, (Names{"between", "shared"}));
  EXPECT_TRUE(same_bytes(log.gradients.back(), shared.grad()));
}

TEST(GradientHook, OnceForALeafTwiceInOneOperation) {
  Log log;
  const Tensor x = log.watched({3}, "x");
  backward(add(x, x), random_tensor({3}, "g"));
  EXPECT_EQ(log.names, Names{"x"});
  EXPECT_TRUE(same_bytes(log.gradients[0], scale(random_tensor({3}, "g"), 2)));
}

TEST(GradientHook, NotForALeafOutsideTheGraph) {
  Log log;
  const Tensor unused = log.watched({3}, "unused");
  backward(scale(log.watched({3}, "used"), 2), random_tensor({3}, "g"));
  EXPECT_EQ(log.names, Names{"used"});
}

TEST(GradientHook, OfWeightsWaitsForTheDeferredPart) {
  Log log;
  const Tensor x = log.watched({5, 3}, "x");
  const Tensor shared = log.watched({3, 3}, "shared");
  const Tensor b = log.watched({3}, "b");
  auto deferred = backward_inputs(linear(linear(x, shared, b), shared), random_tensor({5, 3}, "g"), std::vector{x});
  EXPECT_EQ(log.names, Names{"x"});
  EXPECT_TRUE(same_bytes(log.gradients[0], x.grad()));
  deferred.run();
  EXPECT_EQ(log.names, (Names{"x", "shared", "b"}));
  EXPECT_TRUE(same_bytes(log.gradients[1], shared.grad()));
}

TEST(GradientHook, BehindAParameterOnlySubgraphIsCalledOnce) {
  Log log;
  const Tensor x = random_leaf({5, 3}, "x");
  const Tensor w = log.watched({3, 3}, "w");
  const Tensor doubled = scale(w, 2);
  auto deferred =
      backward_inputs(linear(linear(linear(x, doubled), w), doubled), random_tensor({5, 3}, "g"), std::vector{x});
  EXPECT_TRUE(log.names.empty());
  deferred.run();
  EXPECT_EQ(log.names, Names{"w"});
  EXPECT_TRUE(same_bytes(log.gradients[0], w.grad()));
}

}  // namespace
}  // namespace stagecoach
