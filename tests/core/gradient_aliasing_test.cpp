// Gradients are handed on without copying. Wherever two receivers get the same one, a later sum in place would change
// what the other sees; each test here puts such a sum right after a shared gradient.

#include <gtest/gtest.h>

#include "core/autograd/backward.h"
#include "core/ops.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::of;
using Values = std::vector<double>;

Tensor leaf(double value) { return of({value, value}, {2}).set_requires_grad(true); }
Values grad_of(const Tensor& leaf) { return leaf.grad().to_vector<double>(); }

TEST(GradientAliasing, LeavesOfOneAddKeepGradientsOfTheirOwn) {
  const Tensor x = leaf(1);
  const Tensor y = leaf(2);
  backward(add(x, y), of({3, 4}, {2}));
  EXPECT_NE(x.grad().raw_data(), y.grad().raw_data());
  backward(add(x, y), of({3, 4}, {2}));
  EXPECT_EQ(grad_of(x), (Values{6, 8}));
  EXPECT_EQ(grad_of(y), (Values{6, 8}));
}

TEST(GradientAliasing, TheCallersUpstreamGradientIsLeftAlone) {
  const Tensor x = leaf(1);
  const Tensor upstream = of({3, 4}, {2});
  backward(add(x, leaf(2)), upstream);
  backward(add(x, leaf(2)), upstream);
  EXPECT_EQ(upstream.to_vector<double>(), (Values{3, 4}));
  EXPECT_EQ(grad_of(x), (Values{6, 8}));
}

TEST(GradientAliasing, OneLeafTwiceInAnAdd) {
  const Tensor x = leaf(1);
  const Tensor upstream = of({3, 4}, {2});
  backward(add(x, x), upstream);
  EXPECT_EQ(grad_of(x), (Values{6, 8}));
  EXPECT_EQ(upstream.to_vector<double>(), (Values{3, 4}));
}

TEST(GradientAliasing, OneIntermediateTwiceInAnAdd) {
  const Tensor x = leaf(1);
  const Tensor h = scale(x, 10);
  const Tensor upstream = of({3, 4}, {2});
  backward(add(h, h), upstream);
  EXPECT_EQ(grad_of(x), (Values{60, 80}));
  EXPECT_EQ(upstream.to_vector<double>(), (Values{3, 4}));
}

// A residual block: a's second use adds to the gradient that b got too.
TEST(GradientAliasing, ASummandWithAnotherUse) {
  const Tensor x = leaf(1);
  const Tensor y = leaf(2);
  const Tensor a = scale(x, 2);
  const Tensor b = scale(y, 2);
  const Tensor other = scale(a, 10);
  backward(add(add(a, b), other), of({1, 1}, {2}));
  EXPECT_EQ(grad_of(x), (Values{22, 22}));
  EXPECT_EQ(grad_of(y), (Values{2, 2}));
}

TEST(GradientAliasing, ALeafSummandWithAnotherUse) {
  const Tensor x = leaf(1);
  const Tensor y = leaf(2);
  const Tensor other = scale(x, 10);
  backward(add(add(x, y), other), of({1, 1}, {2}));
  EXPECT_EQ(grad_of(x), (Values{11, 11}));
  EXPECT_EQ(grad_of(y), (Values{1, 1}));
}

// A hook may keep or change what it is given; neither may reach another leaf.
TEST(GradientAliasing, AHookThatChangesItsGradientChangesNoOther) {
  Tensor x = leaf(1);
  Tensor y = leaf(2);
  x.set_gradient_hook([](Tensor& mine) { mine.grad().fill(0); });
  backward(add(x, y), of({3, 4}, {2}));
  EXPECT_EQ(grad_of(x), (Values{0, 0}));
  EXPECT_EQ(grad_of(y), (Values{3, 4}));
}

TEST(GradientAliasing, ThroughReshape) {
  const Tensor x = leaf(1);
  const Tensor y = leaf(2);
  const Tensor a = scale(x, 2);
  const Tensor other = scale(a, 10);
  const Tensor sum = add(a.reshape({2, 1}), y.reshape({2, 1}));
  const Tensor upstream = of({1, 1}, {2, 1});
  backward(add(sum, other.reshape({2, 1})), upstream);
  EXPECT_EQ(grad_of(x), (Values{22, 22}));
  EXPECT_EQ(grad_of(y), (Values{1, 1}));
  EXPECT_EQ(upstream.to_vector<double>(), (Values{1, 1}));
}

TEST(GradientAliasing, ALeafBehindReshapeDoesNotTakeTheUpstreamGradient) {
  const Tensor x = leaf(1);
  const Tensor upstream = of({3, 4}, {2, 1});
  for (int i = 0; i < 2; ++i) {
    backward(x.reshape({2, 1}), upstream);
  }
  EXPECT_EQ(grad_of(x), (Values{6, 8}));
  EXPECT_EQ(upstream.to_vector<double>(), (Values{3, 4}));
}

// What backward_inputs keeps for later is also what it hands on.
TEST(GradientAliasing, ADeferredGradientIsNotChangedByTheInputPart) {
  const Tensor x = leaf(1);
  const Tensor bias = leaf(2);
  const Tensor h = scale(x, 2);
  const Tensor other = scale(h, 10);
  const Tensor output = add(add(h, bias), other);
  auto deferred = backward_inputs(output, of({1, 1}, {2}), std::vector{x});
  EXPECT_EQ(grad_of(x), (Values{22, 22}));
  deferred.run();
  EXPECT_EQ(grad_of(bias), (Values{1, 1}));
}

// relu may write its gradient over the one it was given only if nobody else has that.
TEST(GradientAliasing, ReluLeavesTheCallersUpstreamGradientAlone) {
  const Tensor x = leaf(-1);
  const Tensor upstream = of({3, 4}, {2});
  backward(relu(x), upstream);
  EXPECT_EQ(grad_of(x), (Values{0, 0}));
  EXPECT_EQ(upstream.to_vector<double>(), (Values{3, 4}));
}

TEST(GradientAliasing, ReluLeavesTheOtherSummandsGradientAlone) {
  const Tensor x = leaf(-1);
  const Tensor y = leaf(2);
  const Tensor other = scale(y, 10);  // recorded first, so its backward runs after relu's
  backward(scale(add(relu(x), other), 1), of({3, 4}, {2}));
  EXPECT_EQ(grad_of(x), (Values{0, 0}));
  EXPECT_EQ(grad_of(y), (Values{30, 40}));
}

TEST(GradientAliasing, ReluLeavesADeferredGradientAlone) {
  const Tensor x = leaf(-1);
  const Tensor bias = leaf(2);
  auto deferred = backward_inputs(scale(add(relu(x), bias), 1), of({3, 4}, {2}), std::vector{x});
  deferred.run();
  EXPECT_EQ(grad_of(x), (Values{0, 0}));
  EXPECT_EQ(grad_of(bias), (Values{3, 4}));
}

}  // namespace
}  // namespace stagecoach
