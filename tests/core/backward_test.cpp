// The walk of backward: what it adds where, how often, and what it refuses.

#include "core/autograd/backward.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "core/ops.h"
#include "tests/support/devices.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::random_leaf;
using test::random_tensor;
using test::same_bytes;
using Values = std::vector<double>;

/// Its tensors are on the test's device.
class BackwardOn : public ::testing::TestWithParam<Device> {
 protected:
  static Tensor random_tensor(const Shape& shape, std::string_view name) {
    return test::random_tensor(shape, name, DType::float64, GetParam());
  }
  static Tensor random_leaf(const Shape& shape, std::string_view name) {
    return test::random_leaf(shape, name, DType::float64, GetParam());
  }
  static Tensor of(const Values& values, const Shape& shape) { return test::of(values, shape, GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Devices, BackwardOn, ::testing::ValuesIn(test::devices()), test::device_name);

TEST_P(BackwardOn, AccumulatesOverTwoRuns) {
  const Tensor x = random_tensor({3, 4}, "x");
  const Tensor weight = random_leaf({2, 4}, "weight");
  const Tensor upstream = random_tensor({3, 2}, "upstream");
  backward(linear(x, weight), upstream);
  const Tensor once = weight.grad().clone();
  backward(linear(x, weight), upstream);
  EXPECT_TRUE(same_bytes(weight.grad(), add(once, once)));
}

// Whoever took the handle on the gradient sees it grow: an optimizer or a communicator may keep it.
TEST_P(BackwardOn, AccumulatesInPlace) {
  const Tensor x = random_leaf({3}, "x");
  backward(scale(x, 2), of({1, 1, 1}, {3}));
  const Tensor kept = x.grad();
  backward(scale(x, 2), of({1, 1, 1}, {3}));
  EXPECT_EQ(kept.to_vector<double>(), (Values{4, 4, 4}));
  EXPECT_TRUE(kept.is_same(x.grad()));
}

TEST_P(BackwardOn, StartsAnewAfterZeroGrad) {
  Tensor x = random_leaf({2}, "x");
  backward(scale(x, 3), of({1, 2}, {2}));
  x.zero_grad();
  EXPECT_FALSE(x.grad().defined());
  backward(scale(x, 3), of({1, 2}, {2}));
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{3, 6}));
}

TEST_P(BackwardOn, SumsOverTheUsesOfALeaf) {
  const Tensor x = random_leaf({2}, "x");
  backward(add(scale(x, 2), scale(x, 3)), of({1, 10}, {2}));
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{5, 50}));
}

TEST_P(BackwardOn, SumsOverTheUsesOfAnIntermediate) {
  const Tensor x = random_leaf({2}, "x");
  const Tensor h = scale(x, 2);
  const Tensor left = scale(h, 3);
  const Tensor right = scale(h, 5);
  backward(add(add(left, right), h), of({1, 10}, {2}));
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{18, 180}));
}

// Two micro-batches cut from one batch by narrow: their gradients meet in the whole.
TEST_P(BackwardOn, NarrowedPartsMeetInTheWhole) {
  const Tensor x = random_leaf({3, 2}, "x");
  backward(add(scale(x.narrow(0, 2), 2), scale(x.narrow(1, 2), 10)), of({1, 2, 3, 4}, {2, 2}));
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{2, 4, 16, 28, 30, 40}));
}

TEST_P(BackwardOn, OfAScalarStartsAtOne) {
  const Tensor x = of({3, 4}, {2}).set_requires_grad(true);
  backward(mean_squared_error(x, of({0, 0}, {2}), Reduction::sum));
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{6, 8}));
}

TEST(Backward, LeavesConstantsAlone) {
  const Tensor x = random_tensor({2, 3}, "x");
  const Tensor weight = random_leaf({4, 3}, "weight");
  backward(linear(x, weight), random_tensor({2, 4}, "upstream"));
  EXPECT_FALSE(x.grad().defined());
  EXPECT_TRUE(weight.grad().is_leaf());
  EXPECT_FALSE(weight.grad().requires_grad());
}

TEST(Backward, RefusesWhatCannotBe) {
  const Tensor x = random_leaf({2, 3}, "x");
  const Tensor y = scale(x, 2);
  EXPECT_TRUE(fails_with({"float64[2, 3]", "upstream"}, [&] { backward(y); }));
  EXPECT_TRUE(fails_with({"[3, 2]", "[2, 3]"}, [&] { backward(y, random_tensor({3, 2}, "g")); }));
  EXPECT_TRUE(fails_with({"float32", "float64"}, [&] { backward(y, Tensor::zeros({2, 3})); }));
  EXPECT_TRUE(fails_with({"cpu:5", "cpu:0"}, [&] {
    backward(y, Tensor::zeros({2, 3}, DType::float64, {DeviceType::cpu, 5}));
  }));
  EXPECT_TRUE(fails_with({"expected the result of a recorded operation"}, [&] {
    backward(x.detach(), random_tensor({2, 3}, "g"));
  }));
  EXPECT_TRUE(fails_with({"undefined"}, [&] { backward(Tensor()); }));
  EXPECT_FALSE(x.grad().defined());
}

// As of a layer that returns its input.
TEST(Backward, GradientOfALeafItselfIsAddedOnce) {
  Tensor x = random_leaf({2, 3}, "x");
  const Tensor grad = random_tensor({2, 3}, "g");
  int calls = 0;
  x.set_gradient_hook([&](Tensor&) { ++calls; });
  backward(x, grad);
  EXPECT_EQ(x.grad().to_vector<double>(), grad.to_vector<double>());
  EXPECT_NE(x.grad().storage(), grad.storage()) << "a later sum must not change the caller's gradient";

  x.zero_grad();
  const std::vector<Tensor> inputs{x};
  EXPECT_EQ(backward_inputs(x, grad, inputs).size(), 0U);
  EXPECT_EQ(x.grad().to_vector<double>(), grad.to_vector<double>());

  x.zero_grad();
  DeferredGradients later = backward_inputs(x, grad, {});
  EXPECT_FALSE(x.grad().defined());
  later.run();
  EXPECT_EQ(x.grad().to_vector<double>(), grad.to_vector<double>());
  EXPECT_EQ(calls, 3);
}

TEST(Backward, NothingIsRecordedUnderNoGrad) {
  const Tensor x = random_leaf({2}, "x");
  {
    const NoGrad no_grad;
    EXPECT_FALSE(grad_enabled());
    const Tensor y = scale(x, 2);
    EXPECT_FALSE(y.requires_grad());
    EXPECT_TRUE(y.is_leaf());
    { const NoGrad again; }
    EXPECT_FALSE(grad_enabled()) << "an inner scope switched recording on again";
  }
  EXPECT_TRUE(grad_enabled());
  EXPECT_TRUE(scale(x, 2).requires_grad());
}

TEST(Backward, NothingIsRecordedForConstants) {
  const Tensor x = random_tensor({1, 2, 3, 3}, "x");
  EXPECT_EQ(relu(x).grad_node(), nullptr);
  EXPECT_EQ(conv2d(x, random_tensor({2, 2, 1, 1}, "w")).grad_node(), nullptr);
  EXPECT_EQ(flatten(x).grad_node(), nullptr);
}

TEST(Backward, NoGradHoldsInItsOwnThreadOnly) {
  const NoGrad no_grad;
  bool elsewhere = false;
  std::jthread([&] { elsewhere = grad_enabled(); }).join();
  EXPECT_TRUE(elsewhere);
}

TEST(Backward, GradientsNeedFloatingPoint) {
  EXPECT_TRUE(fails_with({"floating", "int32[3]"}, [] { Tensor::zeros({3}, DType::int32).set_requires_grad(true); }));
  EXPECT_TRUE(fails_with({"uint8"}, [] { Tensor::zeros({3}, DType::uint8).set_requires_grad(true); }));
  Tensor made = scale(random_leaf({2}, "x"), 2);
  EXPECT_TRUE(fails_with({"a leaf"}, [&] { made.set_requires_grad(false); }));
}

// Two stages, cut by detach, with the gradient carried over the border by hand.
TEST_P(BackwardOn, TwoStagesEqualTheWhole) {
  const Tensor x = random_tensor({5, 1, 6, 6}, "x");
  const Tensor kernel = random_leaf({3, 1, 3, 3}, "kernel");
  const Tensor weight = random_leaf({4, 48}, "weight");
  const Tensor labels = test::random_labels(5, 4, GetParam());
  const auto first = [&](const Tensor& in) { return relu(conv2d(in, kernel)); };
  const auto second = [&](const Tensor& in) { return cross_entropy(linear(flatten(in), weight), labels); };

  backward(second(first(x)));
  const Tensor whole_kernel = kernel.grad().clone();
  const Tensor whole_weight = weight.grad().clone();
  for (Tensor each : {kernel, weight}) {
    each.zero_grad();
  }

  const Tensor sent = first(x);
  Tensor received = sent.detach().set_requires_grad(true);
  EXPECT_TRUE(received.is_leaf());
  backward(second(received));
  EXPECT_FALSE(kernel.grad().defined());
  backward(sent, received.grad());
  EXPECT_TRUE(same_bytes(kernel.grad(), whole_kernel));
  EXPECT_TRUE(same_bytes(weight.grad(), whole_weight));
}

TEST(ReachableLeaves, EachOnceInOrderOfFirstUse) {
  const Tensor x = random_leaf({2, 3}, "x");
  const Tensor w = random_leaf({3, 3}, "w");
  const Tensor b = random_leaf({3}, "b");
  const Tensor unused = random_leaf({3}, "unused");
  const Tensor constant = random_tensor({2, 3}, "constant");
  const Tensor y = linear(linear(add(constant, x), w, b), w);
  const auto leaves = reachable_leaves(std::vector{y});
  ASSERT_EQ(leaves.size(), 3U);
  EXPECT_TRUE(leaves[0].is_same(x));
  EXPECT_TRUE(leaves[1].is_same(w));
  EXPECT_TRUE(leaves[2].is_same(b));
  EXPECT_EQ(reachable_leaves(std::vector{scale(unused, 2), y}).size(), 4U);
  EXPECT_TRUE(reachable_leaves(std::vector{constant}).empty());
}

TEST(RecordedNodes, EachOnceInTheOrderOfRecording) {
  const Tensor x = random_leaf({2, 3}, "x");
  const Tensor h = relu(x);
  const Tensor y = add(scale(h, 2), h);
  std::vector<std::string> names;
  for (const auto& node : recorded_nodes(y)) {
    names.emplace_back(node->name());
  }
  EXPECT_EQ(names, (std::vector<std::string>{"relu", "scale", "add"}));
  EXPECT_TRUE(recorded_nodes(x).empty());
}

}  // namespace
}  // namespace stagecoach
