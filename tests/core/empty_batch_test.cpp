// A batch without samples: what a rank gets when a batch has fewer samples than there are ranks. It must go through a
// model like any other, and give gradients that are zeros.

#include <functional>

#include "core/autograd/backward.h"
#include "tests/core/kernel_twins.h"
#include "tests/core/operations.h"

namespace stagecoach {
namespace {

using test::Values;
using test::values_of;

class EmptyBatch : public test::Operations {
 protected:
  using Inputs = std::vector<Tensor>;
  /// A random leaf.
  static Tensor leaf(const Shape& shape) { return random(shape, "leaf").set_requires_grad(true); }
  static Tensor zeros(const Shape& shape) { return Tensor::zeros(shape, dtype(), device()); }
  static Tensor no_labels() { return Tensor::zeros({0}, DType::int32, device()); }

  /// Runs `operation` on `inputs`, of which the first is the batch, and its backward.
  static void check(const char* name, const std::function<Tensor(const Inputs&)>& operation, const Inputs& inputs,
                    const Shape& shape) {
    SCOPED_TRACE(name);
    const Tensor y = operation(inputs);
    ASSERT_EQ(y.shape(), shape);
    EXPECT_EQ(values_of(y), Values(static_cast<std::size_t>(shape.numel()), 0.0)) << "a loss of nothing is 0";
    backward(y, zeros(shape));
    for (const Tensor& input : inputs) {
      ASSERT_TRUE(input.grad().defined()) << describe(input);
      EXPECT_TRUE(near(input.grad(), Values(static_cast<std::size_t>(input.numel())), input.shape()));
    }
  }

  /// Calls `kernel` with an output of `shape` that is unset, and wants zeros.
  static void expect_zeros(const char* name, const Shape& shape, const std::function<void(Tensor& out)>& kernel) {
    SCOPED_TRACE(name);
    Tensor out = test::unset(shape, dtype()).to(device());
    kernel(out);
    EXPECT_TRUE(near(out, Values(static_cast<std::size_t>(shape.numel())), shape));
  }
};
INSTANTIATE_TEST_SUITE_P(Types, EmptyBatch, test::devices_and_types(), test::device_and_type);

TEST_P(EmptyBatch, GoesThroughEveryOperation) {
  const Shape image{0, 3, 6, 5};
  check(
      "add", [](const Inputs& in) { return add(in[0], in[1]); }, {leaf(image), leaf(image)}, image);
  check(
      "scale", [](const Inputs& in) { return scale(in[0], 3); }, {leaf(image)}, image);
  check(
      "relu", [](const Inputs& in) { return relu(in[0]); }, {leaf(image)}, image);
  check("flatten", [](const Inputs& in) { return flatten(in[0]); }, {leaf(image)}, {0, 90});
  check("linear", [](const Inputs& in) { return linear(in[0], in[1], in[2]); }, {leaf({0, 7}), leaf({4, 7}), leaf({4})},
        {0, 4});
  check("conv2d",
        [](const Inputs& in) {
          return conv2d(in[0], in[1], in[2], {2, 1});
        },
        {leaf(image), leaf({4, 3, 3, 3}), leaf({4})}, {0, 4, 3, 3});
  check("max_pool2d", [](const Inputs& in) { return max_pool2d(in[0], {2, 2, 0}); }, {leaf(image)}, {0, 3, 3, 2});
  check("max_pool2d, overlapping",
        [](const Inputs& in) {
          return max_pool2d(in[0], {3, 2, 1});
        },
        {leaf(image)}, {0, 3, 3, 3});
  check("global_average_pool", [](const Inputs& in) { return global_average_pool(in[0]); }, {leaf(image)}, {0, 3});
  check("softmax", [](const Inputs& in) { return softmax(in[0]); }, {leaf({0, 3})}, {0, 3});
  check("log_softmax", [](const Inputs& in) { return log_softmax(in[0]); }, {leaf({0, 3})}, {0, 3});
  const Shape tokens{0, 5, 6};
  check("linear of tokens", [](const Inputs& in) { return linear(in[0], in[1]); }, {leaf(tokens), leaf({4, 6})},
        {0, 5, 4});
  check(
      "gelu", [](const Inputs& in) { return gelu(in[0]); }, {leaf(tokens)}, tokens);
  check(
      "layer_norm", [](const Inputs& in) { return layer_norm(in[0], in[1], in[2]); },
      {leaf(tokens), leaf({6}), leaf({6})}, tokens);
  check("attention", [](const Inputs& in) { return attention(in[0], 2); }, {leaf(tokens)}, {0, 5, 2});
  check("causal attention", [](const Inputs& in) { return attention(in[0], 2, AttentionMask::causal); }, {leaf(tokens)},
        {0, 5, 2});
  check("matmul", [](const Inputs& in) { return matmul(in[0], in[1]); }, {leaf(tokens), leaf({0, 6, 2})}, {0, 5, 2});
  check("transpose", [](const Inputs& in) { return transpose(in[0]); }, {leaf(tokens)}, {0, 6, 5});
  check(
      "add_broadcast", [](const Inputs& in) { return add_broadcast(in[0], in[1]); }, {leaf(tokens), leaf({5, 6})},
      tokens);
  check(
      "dropout",
      [](const Inputs& in) {
        return dropout(in[0], {0.5, Philox(1), 0});
      },
      {leaf(tokens)}, tokens);
  check("token_mean", [](const Inputs& in) { return token_mean(in[0]); }, {leaf(tokens)}, {0, 6});
  check(
      "batch_norm in inference",
      [](const Inputs& in) { return batch_norm(in[0], in[1], in[2], zeros({3}), zeros({3}), {.training = false}); },
      {leaf(image), leaf({3}), leaf({3})}, image);
  check("cross_entropy", [](const Inputs& in) { return cross_entropy(in[0], no_labels(), Reduction::sum); },
        {leaf({0, 3})}, {});
  check("mean_squared_error", [](const Inputs& in) { return mean_squared_error(in[0], in[1], Reduction::sum); },
        {leaf(image), leaf(image)}, {});
}

TEST_P(EmptyBatch, GoesThroughWhatHasNoGradient) {
  EXPECT_EQ(normalize(Tensor::zeros({0, 3, 4, 4}, DType::uint8, device())).shape(), (Shape{0, 3, 4, 4}));
  Tensor count = Tensor::full({}, 5, DType::int32, device());
  count_correct(zeros({0, 3}), no_labels(), count);
  count_correct(no_labels(), no_labels(), count);
  EXPECT_EQ(count.item(), 5);
}

// Kernels write their whole result: zeros are written too, and are not what happened to be there.
TEST_P(EmptyBatch, IsSummedToZero) {
  const Kernels& on = kernels(device());
  const Tensor rows = zeros({0, 3});
  const Tensor image = zeros({0, 3, 4, 4});
  const Tensor wide = zeros({0, 64, 4, 4});  // for which the CPU has a kernel of its own
  const Tensor ones = Tensor::full({3}, 1, dtype(), device());
  const Window window{3, 1, 1};
  Tensor none;
  expect_zeros("linear", {3, 3}, [&](Tensor& out) { on.linear_grad_weight(rows, rows, out, none); });
  expect_zeros("conv2d", {3, 3, 3, 3}, [&](Tensor& out) { on.conv2d_grad_weight(image, image, window, out, none); });
  expect_zeros("wide conv2d", {64, 64, 3, 3},
               [&](Tensor& out) { on.conv2d_grad_weight(wide, wide, window, out, none); });
  Tensor weight = zeros({3, 3});
  expect_zeros("linear, bias", {3}, [&](Tensor& out) { on.linear_grad_weight(rows, rows, weight, out); });
  Tensor taps = zeros({3, 3, 3, 3});
  expect_zeros("conv2d, bias", {3}, [&](Tensor& out) { on.conv2d_grad_weight(image, image, window, taps, out); });
  expect_zeros("sums", {3}, [&](Tensor& out) { on.channel_sums(image, out); });
  expect_zeros("squares", {3}, [&](Tensor& out) { on.squared_deviations(image, ones, out); });
  Tensor other = zeros({3});
  expect_zeros("batch_norm, weight", {3}, [&](Tensor& out) {
    on.batch_norm_grad_weight(image, image, ones, ones, ones, ones, Activation::relu, out, other);
  });
  expect_zeros("batch_norm, bias", {3}, [&](Tensor& out) {
    on.batch_norm_grad_weight(image, image, ones, ones, ones, ones, Activation::relu, other, out);
  });
  Tensor probabilities = zeros({0, 3});
  expect_zeros("layer_norm, weight", {3},
               [&](Tensor& out) { on.layer_norm_grad_weight(rows, rows, zeros({0}), zeros({0}), out, other); });
  expect_zeros("layer_norm, bias", {3},
               [&](Tensor& out) { on.layer_norm_grad_weight(rows, rows, zeros({0}), zeros({0}), other, out); });
  expect_zeros("cross_entropy", {}, [&](Tensor& out) { on.cross_entropy(rows, no_labels(), 1, out, probabilities); });
  expect_zeros("squared_error", {}, [&](Tensor& out) { on.squared_error(image, image, 1, out); });
}

}  // namespace
}  // namespace stagecoach
