// Linear layers and convolutions. The sizes are around the tiles into which GPU kernels divide matrices.

#include "tests/core/kernel_twins.h"

namespace stagecoach {
namespace {

using test::Tensors;

class MatrixTwins : public test::KernelTwins {
 protected:
  /// With a bias, and without one; the latter for few outputs only, as emulated kernels are slow.
  static Tensors biases(std::int64_t outputs) {
    const Tensor bias = random({outputs}, "bias");
    return outputs <= 17 ? Tensors{bias, Tensor()} : Tensors{bias};
  }
};
STAGECOACH_KERNEL_TWINS(MatrixTwins);

struct LinearSizes {
  std::int64_t samples, inputs, outputs;
};
const LinearSizes kLinearSizes[] = {{1, 1, 1},    {3, 17, 1},   {17, 1, 3},   {1, 130, 65}, {65, 3, 130}, {64, 64, 17},
                                    {65, 17, 64}, {130, 65, 3}, {17, 64, 65}, {3, 130, 64}, {64, 65, 1},  {0, 3, 17}};

/// Calls body(case) for all of kLinearSizes.
template <class Body>
void for_each_linear(const Body& body) {
  for (const LinearSizes& c : kLinearSizes) {
    SCOPED_TRACE(fmt::format("{} samples, {} inputs, {} outputs", c.samples, c.inputs, c.outputs));
    body(c);
  }
}

TEST_P(MatrixTwins, Linear) {
  for_each_linear([](const LinearSizes& c) {
    for (const Tensor& bias : biases(c.outputs)) {
      expect_twins(
          {random({c.samples, c.inputs}, "x"), random({c.outputs, c.inputs}, "weight"), bias,
           unset({c.samples, c.outputs})},
          [](const Kernels& k, Tensors& t) { k.linear(t[0], t[1], t[2], t[3]); }, c.inputs);
    }
  });
}

TEST_P(MatrixTwins, LinearGradInput) {
  for_each_linear([](const LinearSizes& c) {
    expect_twins(
        {random({c.samples, c.outputs}, "grad"), random({c.outputs, c.inputs}, "weight"), unset({c.samples, c.inputs})},
        [](const Kernels& k, Tensors& t) { k.linear_grad_input(t[0], t[1], t[2]); }, c.outputs);
  });
}

TEST_P(MatrixTwins, LinearGradWeight) {
  for_each_linear([](const LinearSizes& c) {
    expect_twins(
        {random({c.samples, c.outputs}, "grad"), random({c.samples, c.inputs}, "x"), unset({c.outputs, c.inputs}),
         Tensor()},
        [](const Kernels& k, Tensors& t) { k.linear_grad_weight(t[0], t[1], t[2], t[3]); }, c.samples);
  });
}

TEST_P(MatrixTwins, LinearGradWeightAndBias) {
  for_each_linear([](const LinearSizes& c) {
    expect_twins(
        {random({c.samples, c.outputs}, "grad"), random({c.samples, c.inputs}, "x"), unset({c.outputs, c.inputs}),
         unset({c.outputs})},
        [](const Kernels& k, Tensors& t) { k.linear_grad_weight(t[0], t[1], t[2], t[3]); }, c.samples);
  });
}

/// x [N, C, H, W], outputs, window.
struct ConvSizes {
  Shape x;
  std::int64_t outputs;
  Window window;

  Shape weight() const { return {outputs, x[1], window.kernel, window.kernel}; }
  Shape y() const { return {x[0], outputs, window.positions(x[2]), window.positions(x[3])}; }
};
const ConvSizes kConvSizes[] = {
    {{1, 1, 1, 1}, 1, {1, 1, 0}},   {{2, 3, 5, 4}, 6, {3, 1, 1}},
    {{5, 1, 7, 9}, 17, {5, 2, 2}},  {{1, 6, 17, 19}, 3, {3, 2, 1}},
    {{2, 17, 6, 5}, 70, {1, 1, 0}}, {{1, 70, 5, 7}, 6, {3, 1, 1}},
    {{1, 3, 9, 4}, 70, {5, 3, 2}},  {{5, 6, 8, 3}, 1, {3, 3, 0}},
    {{2, 1, 2, 13}, 3, {1, 3, 1}},  // padding around a kernel of one: some outputs are the bias alone
    {{1, 17, 3, 3}, 3, {5, 1, 1}},  // the kernel is larger than the image
    {{2, 3, 6, 6}, 1, {3, 2, 0}},   {{1, 1, 11, 5}, 1, {5, 1, 0}},
    {{2, 6, 7, 7}, 17, {1, 2, 0}},  // a shortcut of a residual network
    {{5, 3, 1, 1}, 6, {3, 1, 1}},   // nearly all padding
    {{1, 1, 33, 31}, 1, {3, 1, 2}}, {{0, 3, 5, 4}, 6, {3, 1, 1}},
};

/// Calls body(case) for all of kConvSizes.
template <class Body>
void for_each_conv(const Body& body) {
  for (const ConvSizes& c : kConvSizes) {
    SCOPED_TRACE(fmt::format("x {}, {} outputs, kernel {}, stride {}, padding {}", to_string(c.x), c.outputs,
                             c.window.kernel, c.window.stride, c.window.padding));
    body(c);
  }
}

TEST_P(MatrixTwins, Conv2d) {
  for_each_conv([](const ConvSizes& c) {
    for (const Tensor& bias : biases(c.outputs)) {
      expect_twins(
          {random(c.x, "x"), random(c.weight(), "weight"), bias, unset(c.y())},
          [&](const Kernels& k, Tensors& t) { k.conv2d(t[0], t[1], t[2], c.window, t[3]); },
          c.weight().numel() / c.outputs);
    }
  });
}

TEST_P(MatrixTwins, Conv2dGradInput) {
  for_each_conv([](const ConvSizes& c) {
    expect_twins(
        {random(c.y(), "grad"), random(c.weight(), "weight"), unset(c.x)},
        [&](const Kernels& k, Tensors& t) { k.conv2d_grad_input(t[0], t[1], c.window, t[2]); },
        c.weight().numel() / c.x[1]);
  });
}

TEST_P(MatrixTwins, Conv2dGradWeight) {
  for_each_conv([](const ConvSizes& c) {
    expect_twins(
        {random(c.y(), "grad"), random(c.x, "x"), unset(c.weight()), Tensor()},
        [&](const Kernels& k, Tensors& t) { k.conv2d_grad_weight(t[0], t[1], c.window, t[2], t[3]); },
        c.y().numel() / c.outputs);
  });
}

TEST_P(MatrixTwins, Conv2dGradWeightAndBias) {
  for_each_conv([](const ConvSizes& c) {
    expect_twins(
        {random(c.y(), "grad"), random(c.x, "x"), unset(c.weight()), unset({c.outputs})},
        [&](const Kernels& k, Tensors& t) { k.conv2d_grad_weight(t[0], t[1], c.window, t[2], t[3]); },
        c.y().numel() / c.outputs);
  });
}

}  // namespace
}  // namespace stagecoach
