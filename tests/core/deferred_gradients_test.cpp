// backward in two parts, inputs first and weights later, must be one whole backward bit for bit.

#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>

#include "core/autograd/backward.h"
#include "core/ops.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::random_leaf;
using test::random_tensor;
using test::same_bytes;

/// A stage: its parameters' shapes, and what it computes from an input and them.
struct Stage {
  std::string name;
  Shape input;
  std::vector<Shape> parameters;
  std::function<Tensor(const Tensor& x, const std::vector<Tensor>& p)> forward;
};

const Stage kStages[] = {
    {"Mlp",
     {17, 5},
     {{7, 5}, {7}, {3, 7}, {3}},
     [](const Tensor& x, const std::vector<Tensor>& p) { return linear(relu(linear(x, p[0], p[1])), p[2], p[3]); }},
    {"Convnet",
     {5, 2, 8, 8},
     {{3, 2, 3, 3}, {3}, {3}, {3}, {4, 27}, {4}},
     [](const Tensor& x, const std::vector<Tensor>& p) {
       const Tensor normal = batch_norm(conv2d(x, p[0], p[1], {1, 0}), p[2], p[3], Tensor::zeros({3}, DType::float64),
                                        Tensor::full({3}, 1, DType::float64));
       return log_softmax(linear(flatten(max_pool2d(relu(normal), {2, 2, 0})), p[4], p[5]));
     }},
    {"Residual",
     {3, 2, 5, 5},
     {{2, 2, 3, 3}, {2, 2, 3, 3}, {2, 2, 1, 1}},
     [](const Tensor& x, const std::vector<Tensor>& p) {
       const Tensor h = relu(add(x, conv2d(relu(conv2d(x, p[0], {}, {1, 1})), p[1], {}, {1, 1})));
       return global_average_pool(add(conv2d(h, p[2]), h));
     }},
    {"TransformerBlock",
     {3, 5, 6},
     {{5, 6}, {6}, {6}, {18, 6}, {18}, {6, 6}, {4, 6}, {6, 4}},
     [](const Tensor& x, const std::vector<Tensor>& p) {
       const Tensor placed = add_broadcast(x, p[0]);
       const Tensor h = add(placed, linear(attention(linear(layer_norm(placed, p[1], p[2]), p[3], p[4]), 2), p[5]));
       return token_mean(add(h, linear(gelu(linear(h, p[6])), p[7])));
     }},
    {"TiedWeights",
     {4, 6},
     {{6, 6}, {6}},
     [](const Tensor& x, const std::vector<Tensor>& p) { return linear(relu(linear(x, p[0], p[1])), p[0], p[1]); }},
    {"ParameterOnlySubgraph",
     {4, 6},
     {{6, 6}, {6, 6}},
     [](const Tensor& x, const std::vector<Tensor>& p) {
       const Tensor mixed = add(scale(p[0], 2), p[1]);
       return linear(linear(linear(x, mixed), p[0]), scale(mixed, 0.5));
     }},
    // The gradient that `add` owes the parameter is the one that it hands on to h, which then grows.
    {"OwedGradientSharedWithTheInputPath",
     {4, 6},
     {{4, 6}},
     [](const Tensor& x, const std::vector<Tensor>& p) {
       const Tensor h = scale(x, 2);
       const Tensor other = scale(h, 10);
       return add(add(h, p[0]), other);
     }},
    {"ParameterOnlyAfterTheInput",
     {4, 6},
     {{4, 6}, {4, 6}},
     [](const Tensor& x, const std::vector<Tensor>& p) { return add(relu(x), add(p[0], scale(p[1], 3))); }},
};

/// What gtest prints for a parameter; else it prints the bytes.
void PrintTo(const Stage& stage, std::ostream* out) { *out << stage.name; }

std::string name_of_stage(const ::testing::TestParamInfo<Stage>& info) { return info.param.name; }

class TwoPartBackward : public ::testing::TestWithParam<Stage> {
 protected:
  TwoPartBackward() {
    x_ = random_leaf(GetParam().input, "x");
    for (const Shape& shape : GetParam().parameters) {
      parameters_.push_back(random_leaf(shape, "parameter " + std::to_string(parameters_.size())));
    }
  }

  Tensor forward(const Tensor& x) { return GetParam().forward(x, parameters_); }

  /// The gradients of the parameters, which are then reset.
  std::vector<Tensor> take_gradients() {
    std::vector<Tensor> taken;
    for (Tensor& parameter : parameters_) {
      taken.push_back(parameter.grad());
      parameter.zero_grad();
    }
    return taken;
  }

  void expect_gradients(const std::vector<Tensor>& expected) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      EXPECT_TRUE(same_bytes(parameters_[i].grad(), expected[i])) << "parameter " << i;
    }
  }

  Tensor x_;
  std::vector<Tensor> parameters_;
};
INSTANTIATE_TEST_SUITE_P(Stages, TwoPartBackward, ::testing::ValuesIn(kStages), name_of_stage);

TEST_P(TwoPartBackward, EqualOneWholeBackward) {
  const Tensor whole = forward(x_);
  const Tensor upstream = random_tensor(whole.shape(), "upstream");
  backward(whole, upstream);
  const Tensor wanted_x = x_.grad().clone();
  const auto expected = take_gradients();
  x_.zero_grad();

  auto deferred = backward_inputs(forward(x_), upstream, std::vector{x_});
  EXPECT_TRUE(same_bytes(x_.grad(), wanted_x)) << "the input gradient, before run()";
  EXPECT_GT(deferred.size(), 0U);
  for (const Tensor& parameter : parameters_) {
    EXPECT_FALSE(parameter.grad().defined()) << "a weight was done before run()";
  }
  deferred.run();
  EXPECT_EQ(deferred.size(), 0U);
  EXPECT_TRUE(same_bytes(x_.grad(), wanted_x)) << "the input gradient, after run()";
  expect_gradients(expected);
}

// The first stage has no input that needs a gradient: all is deferred.
TEST_P(TwoPartBackward, WithoutInputsAllOfItIsDeferred) {
  const Tensor whole = forward(x_.detach());
  const Tensor upstream = random_tensor(whole.shape(), "upstream");
  backward(whole, upstream);
  const auto expected = take_gradients();

  auto deferred = backward_inputs(forward(x_.detach()), upstream, {});
  for (const Tensor& parameter : parameters_) {
    EXPECT_FALSE(parameter.grad().defined());
  }
  deferred.run();
  expect_gradients(expected);
}

// Zero-bubble schedules run the weight parts of several micro-batches later than all input parts.
TEST_P(TwoPartBackward, OfTwoMicroBatchesRunLater) {
  const Tensor other = random_leaf(GetParam().input, "other");
  const Tensor upstream = random_tensor(forward(x_).shape(), "upstream");
  backward(forward(x_), upstream);
  backward(forward(other), upstream);
  const auto expected = take_gradients();

  auto first = backward_inputs(forward(x_), upstream, std::vector{x_});
  auto second = backward_inputs(forward(other), upstream, std::vector{other});
  first.run();
  second.run();
  expect_gradients(expected);
}

// A schedule may run backwards from the last micro-batch to the first, and still add up from the first to the last.
TEST_P(TwoPartBackward, OfALaterMicroBatchIsHeldUntilItsTurn) {
  const Tensor other = random_leaf(GetParam().input, "other");
  const Tensor upstream = random_tensor(forward(x_).shape(), "upstream");
  backward(forward(x_), upstream);
  backward(forward(other), upstream);
  const auto expected = take_gradients();

  HeldGradients second = backward_inputs(forward(other), upstream, std::vector{other}).run_and_hold();
  EXPECT_FALSE(second.empty());
  for (const Tensor& parameter : parameters_) {
    EXPECT_FALSE(parameter.grad().defined()) << "added before its turn";
  }
  backward_inputs(forward(x_), upstream, std::vector{x_}).run();
  second.add();
  EXPECT_TRUE(second.empty());
  expect_gradients(expected);
}

// Data parallel training reduces a gradient in its hook: it must be whole by then.
TEST(DeferredGradients, CallHooksWhenWhatWasHeldIsAdded) {
  const Tensor x = random_leaf({2, 3}, "x");
  Tensor weight = random_leaf({3, 3}, "weight");
  int calls = 0;
  weight.set_gradient_hook([&](Tensor& leaf) {
    EXPECT_TRUE(leaf.grad().defined());
    ++calls;
  });
  const Tensor twice = linear(linear(x, weight), weight);
  HeldGradients held = backward_inputs(twice, random_tensor({2, 3}, "g"), std::vector{x}).run_and_hold();
  EXPECT_EQ(calls, 0);
  held.add();
  EXPECT_EQ(calls, 1);
  held.add();
  EXPECT_EQ(calls, 1) << "added twice";
}

TEST(DeferredGradients, RunTwiceAddsOnce) {
  const Tensor x = random_leaf({2, 3}, "x");
  const Tensor weight = random_leaf({4, 3}, "weight");
  auto deferred = backward_inputs(linear(x, weight), random_tensor({2, 4}, "g"), std::vector{x});
  deferred.run();
  const Tensor once = weight.grad().clone();
  deferred.run();
  EXPECT_TRUE(same_bytes(weight.grad(), once));
}

TEST(DeferredGradients, OwesNothingWithoutParameters) {
  const Tensor x = random_leaf({2, 3}, "x");
  EXPECT_EQ(backward_inputs(relu(x), random_tensor({2, 3}, "g"), std::vector{x}).size(), 0U);
  EXPECT_TRUE(x.grad().defined());
}

// With two inputs (a skip connection over a stage) both are done at once.
TEST(DeferredGradients, OfAStageWithTwoInputs) {
  const Tensor a = random_leaf({2, 3}, "a");
  const Tensor b = random_leaf({2, 3}, "b");
  const Tensor weight = random_leaf({3, 3}, "weight");
  const Tensor upstream = random_tensor({2, 3}, "g");
  auto deferred = backward_inputs(linear(add(a, relu(b)), weight), upstream, std::vector{a, b});
  const Tensor early_a = a.grad().clone();
  const Tensor early_b = b.grad().clone();
  deferred.run();
  for (Tensor each : {a, b, weight}) {
    each.set_grad({});
  }
  backward(linear(add(a, relu(b)), weight), upstream);
  EXPECT_TRUE(same_bytes(a.grad(), early_a));
  EXPECT_TRUE(same_bytes(b.grad(), early_b));
}

}  // namespace
}  // namespace stagecoach
