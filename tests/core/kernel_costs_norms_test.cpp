// Costs of the sums over channels, of batch norm and of layer norm.

#include <algorithm>

#include "tests/core/kernel_costs.h"

namespace stagecoach {
namespace {

using test::Array;
using test::Counted;
using test::expect_cost;
using test::random_tensor;
using test::unwritten;

/// The second one's channels are divided among blocks of a GPU.
const Shape kChannelShapes[] = {{3, 4, 2, 5}, {20, 3, 16, 16}, {6, 7}};

/// Calls body(channel, index) for every element of x [N, C, …].
template <class Body>
void for_each_in_channels(const Array& x, const Body& body) {
  const std::int64_t plane = x.shape.product(2, x.shape.dims());
  for (std::int64_t i = 0; i < x.count(); ++i) {
    body(i / plane % x.size(1), i);
  }
}

TEST(KernelCosts, SumsOfChannels) {
  for (const Shape& shape : kChannelShapes) {
    const Tensor x = random_tensor(shape, "x");
    const Shape channels{shape[1]};
    expect_cost<&Kernels::channel_sums, &KernelCosts::channel_sums>(
        [](const Array& from, Array& out) {
          out.clear();
          for_each_in_channels(from, [&](std::int64_t c, std::int64_t i) { out[c] += from[i]; });
        },
        x, unwritten(channels));
    const auto plain_squares = [](const Array& from, const Array& mean, Array& sums) {
      sums.clear();
      for_each_in_channels(from, [&](std::int64_t c, std::int64_t i) {
        const Counted difference = from[i] - mean[c];
        sums[c] += difference * difference;
      });
    };
    expect_cost<&Kernels::squared_deviations, &KernelCosts::squared_deviations>(
        plain_squares, x, random_tensor(channels, "mean"), unwritten(channels));
    expect_cost<&Kernels::batch_statistics, &KernelCosts::batch_statistics>(
        [&](const Array& from, Array& mean, Array& variance) {
          const double count = static_cast<double>(from.count() / from.size(1));
          mean.clear();
          for_each_in_channels(from, [&](std::int64_t c, std::int64_t i) { mean[c] += from[i]; });
          std::for_each(mean.elements.begin(), mean.elements.end(), [&](Counted& each) { each = each / count; });
          plain_squares(from, mean, variance);
          std::for_each(variance.elements.begin(), variance.elements.end(),
                        [&](Counted& each) { each = each / count; });
        },
        x, unwritten(channels), unwritten(channels));
  }
}

TEST(KernelCosts, Statistics) {
  const Tensor mean = random_tensor({7}, "mean");
  const Tensor variance = Tensor::full({7}, 1.5, DType::float64);
  expect_cost<&Kernels::update_running_statistics, &KernelCosts::update_running_statistics>(
      [](const Array& its_mean, const Array& its_variance, double momentum, std::int64_t count, Array& running_mean,
         Array& running_variance) {
        const double unbiased = static_cast<double>(count) / static_cast<double>(count - 1);
        for (std::int64_t c = 0; c < its_mean.count(); ++c) {
          running_mean[c] = (1 - momentum) * running_mean[c] + momentum * its_mean[c];
          running_variance[c] = (1 - momentum) * running_variance[c] + momentum * unbiased * its_variance[c];
        }
      },
      mean, variance, 0.1, 9, variance, variance);
  expect_cost<&Kernels::rstd, &KernelCosts::rstd>(
      [](const Array& its_variance, double epsilon, Array& out) {
        for (std::int64_t c = 0; c < out.count(); ++c) {
          out[c] = 1 / sqrt(its_variance[c] + epsilon);
        }
      },
      variance, 1e-5, unwritten({7}));
}

/// The factors rstd * weight of all channels.
std::vector<Counted> factors_of(const Array& rstd, const Array& weight) {
  std::vector<Counted> factors;
  for (std::int64_t c = 0; c < rstd.count(); ++c) {
    factors.push_back(rstd[c] * weight[c]);
  }
  return factors;
}

TEST(KernelCosts, BatchNorm) {
  const auto plain = [](const Array& x, const Array& mean, const Array& rstd, const Array& weight, const Array& bias,
                        const Array& addend, Activation activation, Array& y) {
    const std::vector<Counted> factors = factors_of(rstd, weight);
    for_each_in_channels(x, [&](std::int64_t c, std::int64_t i) {
      y[i] = (x[i] - mean[c]) * factors[static_cast<std::size_t>(c)] + bias[c];
      y[i] = addend.defined ? y[i] + addend[i] : y[i];
      y[i] = activation == Activation::relu && y[i] < 0 ? 0 : y[i];
    });
  };
  for (const Shape& shape : kChannelShapes) {
    const auto channel_values = [&](const char* name) { return random_tensor({shape[1]}, name); };
    for (const Activation activation : {Activation::none, Activation::relu}) {
      for (const Tensor& addend : {Tensor(), random_tensor(shape, "addend")}) {
        expect_cost<&Kernels::batch_norm, &KernelCosts::batch_norm>(
            plain, random_tensor(shape, "x"), channel_values("mean"), channel_values("rstd"), channel_values("weight"),
            channel_values("bias"), addend, activation, unwritten(shape));
      }
    }
  }
}

/// What the gradients of batch norm need of channel c.
struct PlainNorm {
  const Array& mean;
  const Array& bias;
  std::vector<Counted> factors;  // with relu
  bool relu;
  /// Returns the gradient before the activation.
  Counted passed(Counted grad, Counted difference, std::int64_t c) const {
    return !relu || 0 < difference * factors[static_cast<std::size_t>(c)] + bias[c] ? grad : 0;
  }
};

TEST(KernelCosts, BatchNormGradientsOfWeights) {
  const auto plain = [](const Array& grad_y, const Array& x, const Array& mean, const Array& rstd, const Array& weight,
                        const Array& bias, Activation activation, Array& grad_weight, Array& grad_bias) {
    const bool relu = activation == Activation::relu;
    const PlainNorm norm{mean, bias, relu ? factors_of(rstd, weight) : std::vector<Counted>(), relu};
    grad_weight.clear();
    grad_bias.clear();
    for_each_in_channels(x, [&](std::int64_t c, std::int64_t i) {
      const Counted difference = x[i] - mean[c];
      const Counted grad = norm.passed(grad_y[i], difference, c);
      grad_weight[c] += grad * difference;
      grad_bias[c] += grad;
    });
    for (std::int64_t c = 0; c < rstd.count(); ++c) {
      grad_weight[c] = rstd[c] * grad_weight[c];
    }
  };
  for (const Shape& shape : kChannelShapes) {
    const auto channel_values = [&](const char* name) { return random_tensor({shape[1]}, name); };
    for (const Activation activation : {Activation::none, Activation::relu}) {
      expect_cost<&Kernels::batch_norm_grad_weight, &KernelCosts::batch_norm_grad_weight>(
          plain, random_tensor(shape, "grad"), random_tensor(shape, "x"), channel_values("mean"),
          channel_values("rstd"), channel_values("weight"), channel_values("bias"), activation, unwritten({shape[1]}),
          unwritten({shape[1]}));
    }
  }
}

TEST(KernelCosts, BatchNormGradientsOfInputs) {
  const auto plain = [](const Array& grad_y, const Array& x, const Array& mean, const Array& rstd, const Array& weight,
                        const Array& bias, Activation activation, const Array& grad_weight, const Array& grad_bias,
                        std::int64_t count, Array& grad_x) {
    const PlainNorm norm{mean, bias, factors_of(rstd, weight), activation == Activation::relu};
    std::vector<Counted> mean_grad;
    std::vector<Counted> mean_product;
    for (std::int64_t c = 0; c < mean.count(); ++c) {
      mean_grad.push_back(grad_bias[c] / static_cast<double>(count));
      mean_product.push_back(grad_weight[c] / static_cast<double>(count));
    }
    for_each_in_channels(x, [&](std::int64_t c, std::int64_t i) {
      const auto channel = static_cast<std::size_t>(c);
      const Counted difference = x[i] - mean[c];
      const Counted grad = norm.passed(grad_y[i], difference, c) - mean_grad[channel];
      grad_x[i] = norm.factors[channel] * (grad - difference * rstd[c] * mean_product[channel]);
    });
  };
  for (const Shape& shape : kChannelShapes) {
    const auto channel_values = [&](const char* name) { return random_tensor({shape[1]}, name); };
    const Tensor grad_y = random_tensor(shape, "grad");
    for (const Activation activation : {Activation::none, Activation::relu}) {
      expect_cost<&Kernels::batch_norm_grad_input_of_batch, &KernelCosts::batch_norm_grad_input_of_batch>(
          plain, grad_y, random_tensor(shape, "x"), channel_values("mean"), channel_values("rstd"),
          channel_values("weight"), channel_values("bias"), activation, channel_values("grad weight"),
          channel_values("grad bias"), 30, unwritten(shape));
    }
    expect_cost<&Kernels::batch_norm_grad_input, &KernelCosts::batch_norm_grad_input>(
        [](const Array& grad, const Array& rstd, const Array& weight, Array& grad_x) {
          const std::vector<Counted> factors = factors_of(rstd, weight);
          for_each_in_channels(grad, [&](std::int64_t c, std::int64_t i) {
            grad_x[i] = factors[static_cast<std::size_t>(c)] * grad[i];
          });
        },
        grad_y, channel_values("rstd"), channel_values("weight"), unwritten(shape));
  }
}

// ---- Layer norm over the rows of x [N, C]

/// The second one's rows are divided among blocks of a GPU.
const Shape kNormShapes[] = {{3, 10}, {300, 7}, {2, 300}};

TEST(KernelCosts, LayerNorm) {
  for (const Shape& shape : kNormShapes) {
    const Shape columns{shape[1]};
    expect_cost<&Kernels::layer_norm, &KernelCosts::layer_norm>(
        [](const Array& x, const Array& weight, const Array& bias, double epsilon, Array& y, Array& mean, Array& rstd) {
          const std::int64_t width = x.size(1);
          mean.clear();
          for (std::int64_t n = 0; n < x.size(0); ++n) {
            const auto at = [&](std::int64_t c) { return x[n * width + c]; };
            for (std::int64_t c = 0; c < width; ++c) {
              mean[n] += at(c);
            }
            mean[n] = mean[n] / static_cast<double>(width);
            Counted squares;
            std::vector<Counted> differences;
            for (std::int64_t c = 0; c < width; ++c) {
              differences.push_back(at(c) - mean[n]);
              squares += differences.back() * differences.back();
            }
            rstd[n] = 1 / sqrt(squares / static_cast<double>(width) + epsilon);
            for (std::int64_t c = 0; c < width; ++c) {
              y[n * width + c] = differences[static_cast<std::size_t>(c)] * rstd[n] * weight[c] + bias[c];
            }
          }
        },
        random_tensor(shape, "x"), random_tensor(columns, "weight"), random_tensor(columns, "bias"), 1e-5,
        unwritten(shape), unwritten({shape[0]}), unwritten({shape[0]}));
  }
}

TEST(KernelCosts, LayerNormGradients) {
  const auto plain_input = [](const Array& grad_y, const Array& x, const Array& mean, const Array& rstd,
                              const Array& weight, Array& grad_x) {
    const std::int64_t width = x.size(1);
    for (std::int64_t n = 0; n < x.size(0); ++n) {
      std::vector<Counted> xhat;
      std::vector<Counted> grad;
      Counted sum;
      Counted products;
      for (std::int64_t c = 0; c < width; ++c) {
        xhat.push_back((x[n * width + c] - mean[n]) * rstd[n]);
        grad.push_back(grad_y[n * width + c] * weight[c]);
        sum += grad.back();
        products += grad.back() * xhat.back();
      }
      const Counted mean_grad = sum / static_cast<double>(width);
      const Counted mean_product = products / static_cast<double>(width);
      for (std::int64_t c = 0; c < width; ++c) {
        const auto i = static_cast<std::size_t>(c);
        grad_x[n * width + c] = rstd[n] * (grad[i] - mean_grad - xhat[i] * mean_product);
      }
    }
  };
  const auto plain_weight = [](const Array& grad_y, const Array& x, const Array& mean, const Array& rstd,
                               Array& grad_weight, Array& grad_bias) {
    grad_weight.clear();
    grad_bias.clear();
    for (std::int64_t i = 0; i < x.count(); ++i) {
      const std::int64_t n = i / x.size(1);
      grad_weight[i % x.size(1)] += grad_y[i] * ((x[i] - mean[n]) * rstd[n]);
      grad_bias[i % x.size(1)] += grad_y[i];
    }
  };
  for (const Shape& shape : kNormShapes) {
    const Tensor grad_y = random_tensor(shape, "grad");
    const Tensor x = random_tensor(shape, "x");
    const Tensor mean = random_tensor({shape[0]}, "mean");
    const Tensor rstd = random_tensor({shape[0]}, "rstd");
    const Shape columns{shape[1]};
    expect_cost<&Kernels::layer_norm_grad_input, &KernelCosts::layer_norm_grad_input>(
        plain_input, grad_y, x, mean, rstd, random_tensor(columns, "weight"), unwritten(shape));
    expect_cost<&Kernels::layer_norm_grad_weight, &KernelCosts::layer_norm_grad_weight>(
        plain_weight, grad_y, x, mean, rstd, unwritten(columns), unwritten(columns));
  }
}

}  // namespace
}  // namespace stagecoach
