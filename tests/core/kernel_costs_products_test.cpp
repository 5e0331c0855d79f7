// Costs of products of matrices, convolutions, pooling and attention.

#include <cmath>
#include <limits>

#include "core/kernels/cpu/conv2d.h"
#include "tests/core/kernel_costs.h"

namespace stagecoach {
namespace {

using test::Array;
using test::Counted;
using test::expect_cost;
using test::random_tensor;
using test::unwritten;

// ---- Linear layers and matrices

struct LinearExtents {
  std::int64_t samples, inputs, outputs;
};
constexpr LinearExtents kLinear[] = {{1, 1, 1}, {5, 7, 3}, {16, 400, 20}, {4, 2000, 6}, {300, 34, 65}};

TEST(KernelCosts, Linear) {
  for (const auto& [samples, inputs, outputs] : kLinear) {
    for (const bool has_bias : {false, true}) {
      expect_cost<&Kernels::linear, &KernelCosts::linear>(
          [](const Array& x, const Array& weight, const Array& bias, Array& y) {
            for (std::int64_t at = 0; at < y.count(); ++at) {
              const std::int64_t o = at % y.size(1);
              y[at] = bias.defined ? bias[o] : 0;
              for (std::int64_t i = 0; i < x.size(1); ++i) {
                y[at] += x[at / y.size(1) * x.size(1) + i] * weight[o * x.size(1) + i];
              }
            }
          },
          random_tensor({samples, inputs}, "x"), random_tensor({outputs, inputs}, "weight"),
          has_bias ? random_tensor({outputs}, "bias") : Tensor(), unwritten({samples, outputs}));
    }
  }
}

TEST(KernelCosts, LinearGradients) {
  const auto plain_input = [](const Array& grad_y, const Array& weight, Array& grad_x) {
    grad_x.clear();
    for (std::int64_t at = 0; at < grad_y.count(); ++at) {
      const std::int64_t n = at / grad_y.size(1);
      for (std::int64_t i = 0; i < grad_x.size(1); ++i) {
        grad_x[n * grad_x.size(1) + i] += grad_y[at] * weight[at % grad_y.size(1) * grad_x.size(1) + i];
      }
    }
  };
  const auto plain_weight = [](const Array& grad_y, const Array& x, Array& grad_weight, Array& grad_bias) {
    grad_weight.clear();
    grad_bias.clear();
    for (std::int64_t at = 0; at < grad_y.count(); ++at) {
      const std::int64_t o = at % grad_y.size(1);
      for (std::int64_t i = 0; grad_weight.defined && i < x.size(1); ++i) {
        grad_weight[o * x.size(1) + i] += grad_y[at] * x[at / grad_y.size(1) * x.size(1) + i];
      }
      if (grad_bias.defined) {
        grad_bias[o] += grad_y[at];
      }
    }
  };
  for (const auto& [samples, inputs, outputs] : kLinear) {
    const Tensor grad_y = random_tensor({samples, outputs}, "grad");
    expect_cost<&Kernels::linear_grad_input, &KernelCosts::linear_grad_input>(
        plain_input, grad_y, random_tensor({outputs, inputs}, "weight"), unwritten({samples, inputs}));
    const Tensor x = random_tensor({samples, inputs}, "x");
    for (const bool has_weight : {false, true}) {
      for (const bool has_bias : {false, true}) {
        if (has_weight || has_bias) {
          expect_cost<&Kernels::linear_grad_weight, &KernelCosts::linear_grad_weight>(
              plain_weight, grad_y, x, has_weight ? unwritten({outputs, inputs}) : Tensor(),
              has_bias ? unwritten({outputs}) : Tensor());
        }
      }
    }
  }
}

TEST(KernelCosts, Matmul) {
  const auto plain = [](const Array& a, const Array& b, const Transposed& transposed, Array& out) {
    const std::int64_t m = out.size(1);
    const std::int64_t n = out.size(2);
    const std::int64_t depth = a.size(transposed.a ? 1 : 2);
    out.clear();
    for (std::int64_t at = 0; at < out.count(); ++at) {
      const std::int64_t batch = at / (m * n);
      const std::int64_t row = at / n % m;
      const std::int64_t column = at % n;
      for (std::int64_t k = 0; k < depth; ++k) {
        out[at] += a[batch * m * depth + (transposed.a ? k * m + row : row * depth + k)] *
                   b[batch * n * depth + (transposed.b ? column * depth + k : k * n + column)];
      }
    }
  };
  struct Extents {
    std::int64_t m, n, k;
  };
  for (const auto& [m, n, k] : {Extents{5, 9, 6}, {20, 70, 133}}) {
    for (const Transposed transposed : {Transposed{}, Transposed{true, false}, Transposed{false, true}}) {
      const Tensor a = random_tensor(transposed.a ? Shape{3, k, m} : Shape{3, m, k}, "a");
      const Tensor b = random_tensor(transposed.b ? Shape{3, n, k} : Shape{3, k, n}, "b");
      expect_cost<&Kernels::matmul, &KernelCosts::matmul>(plain, a, b, transposed, unwritten({3, m, n}));
    }
  }
}

// ---- Convolutions and pooling

struct CountedConvolution {
  std::int64_t samples, channels, height, width, outputs;
  Window window;
};
const CountedConvolution kConvolutions[] = {
    {2, 3, 7, 6, 4, {3, 1, 0}},   {5, 2, 6, 7, 3, {3, 1, 1}},   {9, 3, 8, 8, 5, {3, 2, 1}},
    {3, 4, 6, 6, 2, {1, 2, 0}},   {2, 64, 5, 5, 64, {3, 1, 1}}, {6, 64, 4, 4, 64, {3, 1, 1}},
    {2, 72, 6, 6, 65, {3, 2, 1}}, {1, 2, 5, 5, 2, {2, 3, 0}},
};

/// Calls body(output, weight, input) with the indices of the factors of each product. Taps over the padding have the
/// input -1.
template <class Body>
void for_each_tap(const Array& x, const Array& y, const Window& window, const Body& body) {
  const std::int64_t k = window.kernel;
  for (std::int64_t at = 0; at < y.count(); ++at) {
    const std::int64_t q = at % y.size(3);
    const std::int64_t p = at / y.size(3) % y.size(2);
    const std::int64_t o = at / (y.size(3) * y.size(2)) % y.size(1);
    const std::int64_t n = at / (y.size(3) * y.size(2) * y.size(1));
    for (std::int64_t tap = 0; tap < x.size(1) * k * k; ++tap) {
      const std::int64_t h = p * window.stride + tap / k % k - window.padding;
      const std::int64_t w = q * window.stride + tap % k - window.padding;
      const bool inside = h >= 0 && h < x.size(2) && w >= 0 && w < x.size(3);
      body(at, o * x.size(1) * k * k + tap,
           inside ? ((n * x.size(1) + tap / (k * k)) * x.size(2) + h) * x.size(3) + w : -1);
    }
  }
}

Shape output_of(const CountedConvolution& c) {
  return {c.samples, c.outputs, c.window.positions(c.height), c.window.positions(c.width)};
}

TEST(KernelCosts, Convolutions) {
  const auto plain = [](const Array& x, const Array& weight, const Array& bias, const Window& window, Array& y) {
    for (std::int64_t at = 0; at < y.count(); ++at) {
      y[at] = bias.defined ? bias[at / (y.size(2) * y.size(3)) % y.size(1)] : 0;
    }
    for_each_tap(x, y, window, [&](std::int64_t output, std::int64_t tap, std::int64_t input) {
      y[output] += (input < 0 ? Counted(0) : x[input]) * weight[tap];
    });
  };
  for (const CountedConvolution& c : kConvolutions) {
    const std::int64_t k = c.window.kernel;
    for (const bool has_bias : {false, true}) {
      expect_cost<&Kernels::conv2d, &KernelCosts::conv2d>(
          plain, random_tensor({c.samples, c.channels, c.height, c.width}, "x"),
          random_tensor({c.outputs, c.channels, k, k}, "weight"),
          has_bias ? random_tensor({c.outputs}, "bias") : Tensor(), c.window, unwritten(output_of(c)));
    }
  }
}

TEST(KernelCosts, GradientsOfConvolutions) {
  const auto plain_input = [](const Array& grad_y, const Array& weight, const Window& window, Array& grad_x) {
    grad_x.clear();
    Counted outside;
    for_each_tap(grad_x, grad_y, window, [&](std::int64_t output, std::int64_t tap, std::int64_t input) {
      (input < 0 ? outside : grad_x[input]) += grad_y[output] * weight[tap];
    });
  };
  const auto plain_weight = [](const Array& grad_y, const Array& x, const Window& window, Array& grad_weight,
                               Array& grad_bias) {
    grad_weight.clear();
    grad_bias.clear();
    if (grad_weight.defined) {
      for_each_tap(x, grad_y, window, [&](std::int64_t output, std::int64_t tap, std::int64_t input) {
        grad_weight[tap] += grad_y[output] * (input < 0 ? Counted(0) : x[input]);
      });
    }
    for (std::int64_t at = 0; grad_bias.defined && at < grad_y.count(); ++at) {
      grad_bias[at / (grad_y.size(2) * grad_y.size(3)) % grad_y.size(1)] += grad_y[at];
    }
  };
  for (const CountedConvolution& c : kConvolutions) {
    const Shape images{c.samples, c.channels, c.height, c.width};
    const Shape weights{c.outputs, c.channels, c.window.kernel, c.window.kernel};
    const Tensor grad_y = random_tensor(output_of(c), "grad");
    expect_cost<&Kernels::conv2d_grad_input, &KernelCosts::conv2d_grad_input>(
        plain_input, grad_y, random_tensor(weights, "weight"), c.window, unwritten(images));
    const Tensor x = random_tensor(images, "x");
    expect_cost<&Kernels::conv2d_grad_weight, &KernelCosts::conv2d_grad_weight>(plain_weight, grad_y, x, c.window,
                                                                                unwritten(weights), Tensor());
    expect_cost<&Kernels::conv2d_grad_weight, &KernelCosts::conv2d_grad_weight>(
        plain_weight, grad_y, x, c.window, unwritten(weights), unwritten({c.outputs}));
    expect_cost<&Kernels::conv2d_grad_weight, &KernelCosts::conv2d_grad_weight>(plain_weight, grad_y, x, c.window,
                                                                                Tensor(), unwritten({c.outputs}));
  }
}

TEST(KernelCosts, MaxPooling) {
  const auto plain = [](const Array& x, const Window& window, Array& y, Array& argmax) {
    for (std::int64_t at = 0; at < y.count(); ++at) {
      const std::int64_t top = at / y.size(3) % y.size(2) * window.stride - window.padding;
      const std::int64_t left = at % y.size(3) * window.stride - window.padding;
      const std::int64_t plane = at / (y.size(2) * y.size(3)) * x.size(2) * x.size(3);
      const auto pixel = [&](std::int64_t tap) -> Counted {
        const std::int64_t h = top + tap / window.kernel;
        const std::int64_t w = left + tap % window.kernel;
        const bool inside = h >= 0 && h < x.size(2) && w >= 0 && w < x.size(3);
        return inside ? x[plane + h * x.size(3) + w].value : -std::numeric_limits<double>::infinity();
      };
      std::int64_t best = 0;
      for (std::int64_t tap = 1; tap < window.kernel * window.kernel; ++tap) {
        best = pixel(best) < pixel(tap) ? tap : best;
      }
      y[at] = pixel(best);
      argmax[at] = static_cast<double>((top + best / window.kernel) * x.size(3) + left + best % window.kernel);
    }
  };
  const auto plain_grad = [](const Array& grad_y, const Array& argmax, const Window& /*window*/, Array& grad_x) {
    grad_x.clear();
    for (std::int64_t at = 0; at < grad_y.count(); ++at) {
      const std::int64_t plane = at / (grad_y.size(2) * grad_y.size(3)) * grad_x.size(2) * grad_x.size(3);
      grad_x[plane + argmax.index(at)] += grad_y[at];
    }
  };
  for (const Window& window : {Window{2, 2, 0}, Window{3, 2, 1}, Window{3, 1, 0}}) {
    const Tensor x = random_tensor({2, 3, 8, 6}, "x");
    const Shape positions{2, 3, window.positions(8), window.positions(6)};
    expect_cost<&Kernels::max_pool2d, &KernelCosts::max_pool2d>(plain, x, window, unwritten(positions),
                                                                unwritten(positions, DType::int32));
    Tensor y = unwritten(positions);
    Tensor argmax = unwritten(positions, DType::int32);
    kernels({}).max_pool2d(x, window, y, argmax);
    expect_cost<&Kernels::max_pool2d_grad, &KernelCosts::max_pool2d_grad>(plain_grad, random_tensor(positions, "grad"),
                                                                          argmax, window, unwritten({2, 3, 8, 6}));
  }
}

TEST(KernelCosts, AveragePooling) {
  for (const Shape& shape : {Shape{2, 3, 4, 5}, Shape{1, 5, 17, 16}}) {
    expect_cost<&Kernels::global_average_pool, &KernelCosts::global_average_pool>(
        [](const Array& x, Array& y) {
          const std::int64_t plane = x.size(2) * x.size(3);
          y.clear();
          for (std::int64_t i = 0; i < x.count(); ++i) {
            y[i / plane] += x[i];
          }
          for (Counted& mean : y.elements) {
            mean = mean / static_cast<double>(plane);
          }
        },
        random_tensor(shape, "x"), unwritten({shape[0], shape[1]}));
    expect_cost<&Kernels::global_average_pool_grad, &KernelCosts::global_average_pool_grad>(
        [](const Array& grad_y, Array& grad_x) {
          const std::int64_t plane = grad_x.size(2) * grad_x.size(3);
          for (std::int64_t i = 0; i < grad_x.count(); ++i) {
            grad_x[i] = grad_y[i / plane] / static_cast<double>(plane);
          }
        },
        random_tensor({shape[0], shape[1]}, "grad"), unwritten(shape));
  }
}

// ---- Attention

/// One head of one sample: element [t, d] of its queries, keys or values (part 0, 1, 2) in qkv [N, T, 3 W], and of y.
struct HeadIndices {
  std::int64_t sample, head, tokens, width, head_width;
  AttentionMask mask;
  std::int64_t visible(std::int64_t t) const { return mask == AttentionMask::causal ? t + 1 : tokens; }
  std::int64_t qkv(int part, std::int64_t t, std::int64_t d) const {
    return (sample * tokens + t) * 3 * width + part * width + head * head_width + d;
  }
  std::int64_t y(std::int64_t t, std::int64_t d) const { return (sample * tokens + t) * width + head * head_width + d; }
};

/// Calls body(head) for each of the heads of y [N, T, W].
template <class Body>
void for_each_head(const Array& y, std::int64_t heads, AttentionMask mask, const Body& body) {
  for (std::int64_t h = 0; h < y.size(0) * heads; ++h) {
    body(HeadIndices{h / heads, h % heads, y.size(1), y.size(2), y.size(2) / heads, mask});
  }
}

/// Returns p[s] = softmax over s of q[t] k[s] / sqrt(D), for each s that t sees.
std::vector<Counted> plain_probabilities(const Array& qkv, const HeadIndices& head, std::int64_t t) {
  const double scale = 1 / std::sqrt(static_cast<double>(head.head_width));
  std::vector<Counted> p;
  for (std::int64_t s = 0; s < head.visible(t); ++s) {
    Counted score;
    for (std::int64_t d = 0; d < head.head_width; ++d) {
      score += qkv[head.qkv(0, t, d)] * qkv[head.qkv(1, s, d)];
    }
    p.push_back(scale * score);
  }
  Counted largest = p[0];
  for (std::size_t s = 1; s < p.size(); ++s) {
    largest = largest < p[s] ? p[s] : largest;
  }
  Counted sum;
  for (Counted& value : p) {
    value = exp(value - largest);
    sum += value;
  }
  for (Counted& value : p) {
    value = value / sum;
  }
  return p;
}

void plain_attention(const Array& qkv, std::int64_t heads, AttentionMask mask, Array& y) {
  y.clear();
  for_each_head(y, heads, mask, [&](const HeadIndices& head) {
    for (std::int64_t t = 0; t < head.tokens; ++t) {
      const std::vector<Counted> p = plain_probabilities(qkv, head, t);
      for (std::int64_t s = 0; s < head.visible(t); ++s) {
        for (std::int64_t d = 0; d < head.head_width; ++d) {
          y[head.y(t, d)] += p[static_cast<std::size_t>(s)] * qkv[head.qkv(2, s, d)];
        }
      }
    }
  });
}

/// With dp[s] = grad_y[t] v[s] and ds[s] = p[s] (dp[s] - sum of p dp) / sqrt(D), query t adds ds[s] k[s] to grad_q[t],
/// ds[s] q[t] to grad_k[s] and p[s] grad_y[t] to grad_v[s].
void plain_attention_grad(const Array& grad_y, const Array& qkv, std::int64_t heads, AttentionMask mask,
                          Array& grad_qkv) {
  grad_qkv.clear();
  for_each_head(grad_y, heads, mask, [&](const HeadIndices& head) {
    const double scale = 1 / std::sqrt(static_cast<double>(head.head_width));
    for (std::int64_t t = 0; t < head.tokens; ++t) {
      const std::vector<Counted> p = plain_probabilities(qkv, head, t);
      std::vector<Counted> dp(p.size());
      Counted sum;
      for (std::int64_t s = 0; s < head.visible(t); ++s) {
        const auto i = static_cast<std::size_t>(s);
        for (std::int64_t d = 0; d < head.head_width; ++d) {
          dp[i] += grad_y[head.y(t, d)] * qkv[head.qkv(2, s, d)];
        }
        sum += p[i] * dp[i];
      }
      for (std::int64_t s = 0; s < head.visible(t); ++s) {
        const auto i = static_cast<std::size_t>(s);
        const Counted ds = p[i] * (dp[i] - sum) * scale;
        for (std::int64_t d = 0; d < head.head_width; ++d) {
          grad_qkv[head.qkv(0, t, d)] += ds * qkv[head.qkv(1, s, d)];
          grad_qkv[head.qkv(1, s, d)] += ds * qkv[head.qkv(0, t, d)];
          grad_qkv[head.qkv(2, s, d)] += p[i] * grad_y[head.y(t, d)];
        }
      }
    }
  });
}

TEST(KernelCosts, Attention) {
  struct Case {
    std::int64_t samples, tokens, width, heads;
  };
  for (const auto& [samples, tokens, width, heads] : {Case{1, 1, 1, 1}, {2, 5, 12, 3}, {1, 70, 16, 2}, {1, 6, 80, 2}}) {
    const Tensor qkv = random_tensor({samples, tokens, 3 * width}, "qkv");
    for (const AttentionMask mask : {AttentionMask::none, AttentionMask::causal}) {
      expect_cost<&Kernels::attention, &KernelCosts::attention>(plain_attention, qkv, heads, mask,
                                                                unwritten({samples, tokens, width}));
      expect_cost<&Kernels::attention_grad, &KernelCosts::attention_grad>(
          plain_attention_grad, random_tensor({samples, tokens, width}, "grad"), qkv, heads, mask,
          unwritten({samples, tokens, 3 * width}));
    }
  }
}

// ---- Lanes and tiles that stay idle

TEST(KernelCosts, IdleLanesOfProducts) {
  const auto tensor = [](const Shape& shape) { return Tensor::empty(shape, DType::float32, Device{DeviceType::meta}); };
  const auto linear = [&](std::int64_t samples, std::int64_t inputs, std::int64_t outputs) {
    Tensor y = tensor({samples, outputs});
    return kernel_costs().linear(tensor({samples, inputs}), tensor({outputs, inputs}), {}, y);
  };
  EXPECT_EQ(linear(64, 100, 128).cpu.idle_flops, 0);
  EXPECT_EQ(linear(64, 100, 128).cuda.idle_flops, 0);
  EXPECT_EQ(linear(5, 100, 128).cpu.idle_flops, 2 * 100 * 128 * 3);          // vectors of 8 samples
  EXPECT_EQ(linear(5, 100, 128).cuda.idle_flops, 2 * 100 * 128 * (16 - 5));  // the low tile
  EXPECT_EQ(linear(60, 100, 10).cuda.idle_flops, 2 * 100 * (64 * 64 - 600));
  const auto conv = [&](std::int64_t samples, std::int64_t channels, std::int64_t outputs) {
    Tensor y = tensor({samples, outputs, 8, 8});
    return kernel_costs().conv2d(tensor({samples, channels, 8, 8}), tensor({outputs, channels, 3, 3}), {}, {3, 1, 1},
                                 y);
  };
  EXPECT_EQ(conv(64, 3, 6).cpu.idle_flops, 0);
  EXPECT_EQ(conv(4, 3, 6).cpu.idle_flops, conv(4, 3, 6).flops);  // an image per lane
  EXPECT_EQ(conv(4, 64, 64).cpu.idle_flops, 0);                  // a channel per lane
  EXPECT_EQ(conv(64, 3, 6).cuda.idle_flops, 2 * 27 * 64 * 64 * (16 - 6));
}

}  // namespace
}  // namespace stagecoach
