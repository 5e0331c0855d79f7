// Costs of kernels element by element, of rows of logits and tokens, of losses and of optimizer steps.

#include "tests/core/kernel_costs.h"

#include <cmath>
#include <vector>

namespace stagecoach {
namespace {

using test::Array;
using test::Counted;
using test::expect_cost;
using test::random_tensor;
using test::unwritten;

const Shape kElementShapes[] = {{7}, {3, 5}, {2, 3, 4, 5}};

TEST(KernelCosts, Moves) {
  for (const Shape& shape : kElementShapes) {
    expect_cost<&Kernels::fill, &KernelCosts::fill>(
        [](double value, Array& out) { out.elements.assign(out.elements.size(), value); }, 2.5, unwritten(shape));
    const auto same = [](const Array& source, Array& out) {
      for (std::int64_t i = 0; i < out.count(); ++i) {
        out[i] = source[i];
      }
    };
    expect_cost<&Kernels::copy, &KernelCosts::copy>(same, random_tensor(shape, "x"), unwritten(shape));
    const Tensor halves = Tensor::full(shape, 1.5, DType::float16);
    expect_cost<&Kernels::convert, &KernelCosts::convert>(same, halves, unwritten(shape, DType::float32));
  }
  for (const Shape& shape : {Shape{2, 3, 5}, Shape{1, 40, 8}}) {
    expect_cost<&Kernels::transpose, &KernelCosts::transpose>(
        [](const Array& x, Array& y) {
          for (std::int64_t i = 0; i < x.count(); ++i) {
            const std::int64_t row = i / x.size(2);
            y[(row / x.size(1) * x.size(2) + i % x.size(2)) * x.size(1) + row % x.size(1)] = x[i];
          }
        },
        random_tensor(shape, "x"), unwritten({shape[0], shape[2], shape[1]}));
  }
}

TEST(KernelCosts, CopyColumnsMovesOnlyThese) {
  const Tensor source = Tensor::zeros({6, 7});
  Tensor out = Tensor::zeros({6, 9});
  const KernelCost cost = kernel_costs().copy_columns(source, 1, 2, 3, out);
  EXPECT_EQ(cost.flops, 0);
  EXPECT_EQ(cost.bytes_read, 6 * 3 * 4);
  EXPECT_EQ(cost.bytes_written, 6 * 3 * 4);
}

/// The plain form of an operation on each element of one or two inputs.
template <class Function>
auto each_element(const Function& function) {
  return [=](const Array& x, Array& out) {
    for (std::int64_t i = 0; i < out.count(); ++i) {
      out[i] = function(x[i]);
    }
  };
}
template <class Function>
auto each_pair(const Function& function) {
  return [=](const Array& a, const Array& b, Array& out) {
    for (std::int64_t i = 0; i < out.count(); ++i) {
      out[i] = function(a[i], b[i]);
    }
  };
}

TEST(KernelCosts, ElementByElement) {
  for (const Shape& shape : kElementShapes) {
    const Tensor a = random_tensor(shape, "a");
    const Tensor b = random_tensor(shape, "b");
    expect_cost<&Kernels::add, &KernelCosts::add>(each_pair([](Counted x, Counted y) { return x + y; }), a, b,
                                                  unwritten(shape));
    expect_cost<&Kernels::add_scaled, &KernelCosts::add_scaled>(
        [](const Array& x, double factor, Array& sum) {
          for (std::int64_t i = 0; i < sum.count(); ++i) {
            sum[i] += factor * x[i];
          }
        },
        a, 0.5, b);
    expect_cost<&Kernels::scale, &KernelCosts::scale>(
        [](const Array& x, double factor, Array& out) {
          each_element([=](Counted value) { return factor * value; })(x, out);
        },
        a, 0.5, unwritten(shape));
    expect_cost<&Kernels::relu, &KernelCosts::relu>(each_element([](Counted x) { return x < 0 ? 0 : x; }), a,
                                                    unwritten(shape));
    expect_cost<&Kernels::relu_grad, &KernelCosts::relu_grad>(
        each_pair([](Counted grad, Counted y) { return 0 < y ? grad : 0; }), a, b, unwritten(shape));
  }
}

constexpr double kRoot2 = 1.4142135623730950488;
constexpr double kInverseRoot2Pi = 0.39894228040143267794;
constexpr double kTanhFactor = 0.79788456080286535588;  // sqrt(2 / pi)
constexpr double kTanhCubic = 0.044715;

Counted plain_gelu(Counted x, GeluForm form) {
  return form == GeluForm::exact ? x * (1 + erf(x / kRoot2)) / 2
                                 : x * (1 + tanh(kTanhFactor * (x + kTanhCubic * x * x * x))) / 2;
}

Counted plain_gelu_slope(Counted x, GeluForm form) {
  if (form == GeluForm::exact) {
    return (1 + erf(x / kRoot2)) / 2 + x * (kInverseRoot2Pi * exp(x * x / -2));
  }
  const Counted t = tanh(kTanhFactor * (x + kTanhCubic * x * x * x));
  return (1 + t) / 2 + x * (1 - t * t) / 2 * (kTanhFactor * (1 + 3 * kTanhCubic * x * x));
}

TEST(KernelCosts, Gelu) {
  for (const GeluForm form : {GeluForm::exact, GeluForm::tanh}) {
    const Tensor x = random_tensor({3, 5}, "x");
    expect_cost<&Kernels::gelu, &KernelCosts::gelu>(
        [](const Array& from, GeluForm its_form, Array& out) {
          each_element([=](Counted value) { return plain_gelu(value, its_form); })(from, out);
        },
        x, form, unwritten({3, 5}));
    expect_cost<&Kernels::gelu_grad, &KernelCosts::gelu_grad>(
        [](const Array& grad_y, const Array& from, GeluForm its_form, Array& out) {
          each_pair([=](Counted grad, Counted value) { return grad * plain_gelu_slope(value, its_form); })(grad_y, from,
                                                                                                           out);
        },
        random_tensor({3, 5}, "grad"), x, form, unwritten({3, 5}));
  }
}

TEST(KernelCosts, SingleNumbers) {
  test::CheckedCost<&Kernels::accumulate, &KernelCosts::accumulate>::expect_operations_and_bytes(
      [](const Array& x, Array& sum) { sum[0] += x[0]; }, random_tensor({}, "x"), random_tensor({}, "sum"));
  std::vector<Tensor> counters(129, Tensor::zeros({}, DType::int32));
  const KernelCost cost = kernel_costs().increment(counters);
  EXPECT_EQ(cost.flops, 0);
  EXPECT_EQ(cost.bytes_read, 129 * 4);
  EXPECT_EQ(cost.bytes_written, 129 * 4);
  EXPECT_EQ(cost.cuda.launches, 2);
}

// ---- Rows of logits [N, C]

const Shape kLogits[] = {{1, 1}, {4, 10}, {3, 300}};

/// A row's softmax, with what its logarithm needs.
struct PlainSoftmax {
  Counted largest;
  std::vector<Counted> shifted;  // x - largest
  std::vector<Counted> powers;   // exp(x - largest)
  Counted sum;                   // of the powers
};

PlainSoftmax plain_softmax(const Array& x, std::int64_t row) {
  const auto at = [&](std::int64_t c) { return x[row * x.size(1) + c]; };
  PlainSoftmax softmax;
  softmax.largest = at(0);
  for (std::int64_t c = 1; c < x.size(1); ++c) {
    softmax.largest = softmax.largest < at(c) ? at(c) : softmax.largest;
  }
  for (std::int64_t c = 0; c < x.size(1); ++c) {
    softmax.shifted.push_back(at(c) - softmax.largest);
    softmax.powers.push_back(exp(softmax.shifted.back()));
    softmax.sum += softmax.powers.back();
  }
  return softmax;
}

/// Calls body(softmax of the row, index in the row, index in x).
template <class Body>
void for_each_logit(const Array& x, const Body& body) {
  for (std::int64_t row = 0; row < x.size(0); ++row) {
    const PlainSoftmax softmax = plain_softmax(x, row);
    for (std::int64_t c = 0; c < x.size(1); ++c) {
      body(softmax, static_cast<std::size_t>(c), row * x.size(1) + c);
    }
  }
}

TEST(KernelCosts, Softmax) {
  for (const Shape& shape : kLogits) {
    const auto plain = [](const Array& x, Array& y) {
      for_each_logit(x, [&](const PlainSoftmax& softmax, std::size_t c, std::int64_t i) {
        y[i] = softmax.powers[c] / softmax.sum;
      });
    };
    const auto plain_grad = [](const Array& grad, const Array& y, Array& grad_x) {
      for (std::int64_t row = 0; row < y.count(); row += y.size(1)) {
        Counted sum;
        for (std::int64_t i = row; i < row + y.size(1); ++i) {
          sum += grad[i] * y[i];
        }
        for (std::int64_t i = row; i < row + y.size(1); ++i) {
          grad_x[i] = y[i] * (grad[i] - sum);
        }
      }
    };
    expect_cost<&Kernels::softmax, &KernelCosts::softmax>(plain, random_tensor(shape, "x"), unwritten(shape));
    expect_cost<&Kernels::softmax_grad, &KernelCosts::softmax_grad>(plain_grad, random_tensor(shape, "grad"),
                                                                    random_tensor(shape, "y"), unwritten(shape));
  }
}

TEST(KernelCosts, LogSoftmax) {
  for (const Shape& shape : kLogits) {
    const auto plain = [](const Array& x, Array& y) {
      for (std::int64_t row = 0; row < x.size(0); ++row) {
        const PlainSoftmax softmax = plain_softmax(x, row);
        const Counted log_sum = log(softmax.sum);
        for (std::int64_t c = 0; c < x.size(1); ++c) {
          y[row * x.size(1) + c] = softmax.shifted[static_cast<std::size_t>(c)] - log_sum;
        }
      }
    };
    const auto plain_grad = [](const Array& grad, const Array& y, Array& grad_x) {
      for (std::int64_t row = 0; row < y.count(); row += y.size(1)) {
        Counted sum;
        for (std::int64_t i = row; i < row + y.size(1); ++i) {
          sum += grad[i];
        }
        for (std::int64_t i = row; i < row + y.size(1); ++i) {
          grad_x[i] = grad[i] - exp(y[i]) * sum;
        }
      }
    };
    expect_cost<&Kernels::log_softmax, &KernelCosts::log_softmax>(plain, random_tensor(shape, "x"), unwritten(shape));
    expect_cost<&Kernels::log_softmax_grad, &KernelCosts::log_softmax_grad>(
        plain_grad, random_tensor(shape, "grad"), random_tensor(shape, "y"), unwritten(shape));
  }
}

TEST(KernelCosts, CrossEntropy) {
  for (const Shape& shape : kLogits) {
    const Tensor labels = test::random_labels(shape[0], shape[1]);
    expect_cost<&Kernels::cross_entropy, &KernelCosts::cross_entropy>(
        [](const Array& x, const Array& label, double factor, Array& loss, Array& probabilities) {
          Counted sum;
          for (std::int64_t row = 0; row < x.size(0); ++row) {
            const PlainSoftmax softmax = plain_softmax(x, row);
            for (std::int64_t c = 0; c < x.size(1); ++c) {
              probabilities[row * x.size(1) + c] = softmax.powers[static_cast<std::size_t>(c)] / softmax.sum;
            }
            sum += log(softmax.sum) - softmax.shifted[static_cast<std::size_t>(label.index(row))];
          }
          loss[0] = factor * sum;
        },
        random_tensor(shape, "x"), labels, 0.5, unwritten({}), unwritten(shape));
    expect_cost<&Kernels::cross_entropy_grad, &KernelCosts::cross_entropy_grad>(
        [](const Array& grad_loss, const Array& probabilities, const Array& label, double factor, Array& grad) {
          const Counted weight = factor * grad_loss[0];
          for (std::int64_t i = 0; i < grad.count(); ++i) {
            grad[i] = weight * probabilities[i];
          }
          for (std::int64_t row = 0; row < grad.size(0); ++row) {
            grad[row * grad.size(1) + label.index(row)] -= weight;
          }
        },
        random_tensor({}, "grad"), random_tensor(shape, "p"), labels, 0.5, unwritten(shape));
  }
}

TEST(KernelCosts, CrossEntropyOfSlices) {
  const Tensor logits = random_tensor({6, 10}, "x");
  const Tensor labels = test::random_labels(6, 10);
  expect_cost<&Kernels::class_statistics, &KernelCosts::class_statistics>(
      [](const Array& x, const Array& label, std::int64_t first, std::int64_t /*classes*/, Array& statistics) {
        for (std::int64_t row = 0; row < x.size(0); ++row) {
          const PlainSoftmax softmax = plain_softmax(x, row);
          std::int64_t best = 0;  // found with the largest
          while (softmax.shifted[static_cast<std::size_t>(best)].value != 0) {
            ++best;
          }
          statistics[4 * row] = softmax.largest;
          statistics[4 * row + 1] = static_cast<double>(first + best);
          statistics[4 * row + 2] = softmax.sum;
          statistics[4 * row + 3] = x[row * x.size(1) + label.index(row) - first];
        }
      },
      logits, labels, 0, 10, unwritten({6, 4}));
  expect_cost<&Kernels::combined_cross_entropy, &KernelCosts::combined_cross_entropy>(
      [](const Array& statistics, double factor, Array& loss, Array& normalizers, Array& predictions) {
        const std::int64_t samples = statistics.size(1);
        Counted total;
        for (std::int64_t n = 0; n < samples; ++n) {
          const auto at = [&](std::int64_t slice, int i) { return statistics[(slice * samples + n) * 4 + i]; };
          std::int64_t best = 0;
          for (std::int64_t slice = 1; slice < statistics.size(0); ++slice) {
            best = at(best, 0) < at(slice, 0) ? slice : best;
          }
          Counted sum;
          Counted label_logit;
          for (std::int64_t slice = 0; slice < statistics.size(0); ++slice) {
            sum += at(slice, 2) * exp(at(slice, 0) - at(best, 0));
            label_logit += at(slice, 3);
          }
          normalizers[2 * n] = at(best, 0);
          normalizers[2 * n + 1] = log(sum);
          predictions[n] = std::trunc(at(best, 1).value);
          total -= (label_logit - normalizers[2 * n]) - normalizers[2 * n + 1];
        }
        loss[0] = factor * total;
      },
      Tensor::full({3, 6, 4}, 1.5, DType::float64), 0.5, unwritten({}), unwritten({6, 2}),
      unwritten({6}, DType::int32));
  expect_cost<&Kernels::class_slice_grad, &KernelCosts::class_slice_grad>(
      [](const Array& grad_loss, const Array& x, const Array& label, const Array& normalizers, std::int64_t first,
         double factor, Array& grad) {
        const Counted weight = factor * grad_loss[0];
        for (std::int64_t i = 0; i < x.count(); ++i) {
          const std::int64_t row = i / x.size(1);
          grad[i] = weight * exp((x[i] - normalizers[2 * row]) - normalizers[2 * row + 1]);
        }
        for (std::int64_t row = 0; row < x.size(0); ++row) {
          grad[row * x.size(1) + label.index(row) - first] -= weight;
        }
      },
      random_tensor({}, "grad"), logits, labels, random_tensor({6, 2}, "normalizers"), 0, 0.5, unwritten({6, 10}));
}

TEST(KernelCosts, SquaredError) {
  for (const Shape& shape : {Shape{5}, Shape{3, 5000}}) {
    const Tensor a = random_tensor(shape, "a");
    const Tensor b = random_tensor(shape, "b");
    expect_cost<&Kernels::squared_error, &KernelCosts::squared_error>(
        [](const Array& x, const Array& y, double factor, Array& loss) {
          Counted sum;
          for (std::int64_t i = 0; i < x.count(); ++i) {
            const Counted difference = x[i] - y[i];
            sum += difference * difference;
          }
          loss[0] = factor * sum;
        },
        a, b, 0.5, unwritten({}));
    expect_cost<&Kernels::squared_error_grad, &KernelCosts::squared_error_grad>(
        [](const Array& grad_loss, const Array& x, const Array& y, double factor, Array& grad) {
          const Counted weight = 2 * factor * grad_loss[0];
          for (std::int64_t i = 0; i < x.count(); ++i) {
            grad[i] = weight * (x[i] - y[i]);
          }
        },
        random_tensor({}, "grad"), a, b, 0.5, unwritten(shape));
  }
}

TEST(KernelCosts, Images) {
  expect_cost<&Kernels::normalize, &KernelCosts::normalize>(
      [](const Array& images, const Normalization& n, Array& out) {
        for (std::int64_t i = 0; i < images.count(); ++i) {
          const auto channel = static_cast<std::size_t>(i / (images.size(2) * images.size(3)) % 3);
          const double factor = 1 / (255.0 * n.deviation[channel]);
          const double shift = -n.mean[channel] / n.deviation[channel];
          out[i] = images[i] * factor + shift;
        }
      },
      Tensor::full({2, 3, 4, 5}, 9, DType::uint8), Normalization{}, unwritten({2, 3, 4, 5}, DType::float32));
  const Tensor labels = test::random_labels(6, 10);
  expect_cost<&Kernels::count_correct, &KernelCosts::count_correct>(
      [](const Array& x, const Array& label, Array& count) {
        for (std::int64_t row = 0; row < x.size(0); ++row) {
          std::int64_t best = 0;
          for (std::int64_t c = 1; c < x.size(1); ++c) {
            best = x[row * x.size(1) + best] < x[row * x.size(1) + c] ? c : best;
          }
          count.elements[0].value += best == label.index(row) ? 1 : 0;
        }
      },
      random_tensor({6, 10}, "x"), labels, Tensor::zeros({}, DType::int32));
  Tensor samples = unwritten({6, 3, 4, 5});
  const KernelCost gathered = kernel_costs().gather(Tensor::zeros({1000, 3, 4, 5}), labels, samples);
  EXPECT_EQ(gathered.flops, 0);
  EXPECT_EQ(gathered.bytes_read, 6 * 4 + 6 * 3 * 4 * 5 * 8) << "the crops, and the rows that are copied";
  EXPECT_EQ(gathered.bytes_written, 6 * 3 * 4 * 5 * 8);
  expect_cost<&Kernels::count_equal, &KernelCosts::count_equal>(
      [](const Array& a, const Array& b, Array& count) {
        for (std::int64_t i = 0; i < a.count(); ++i) {
          count.elements[0].value += a.index(i) == b.index(i) ? 1 : 0;
        }
      },
      labels, labels, Tensor::zeros({}, DType::int32));
}

// ---- Tokens [N, T, C]

TEST(KernelCosts, Tokens) {
  for (const Shape& shape : {Shape{2, 3, 5}, Shape{1, 40, 8}}) {
    const Tensor x = random_tensor(shape, "x");
    const std::int64_t width = shape[2];
    expect_cost<&Kernels::add_broadcast, &KernelCosts::add_broadcast>(
        [](const Array& from, const Array& b, Array& y) {
          for (std::int64_t i = 0; i < y.count(); ++i) {
            y[i] = from[i] + b[i % b.count()];
          }
        },
        x, random_tensor({shape[1], width}, "b"), unwritten(shape));
    expect_cost<&Kernels::token_mean, &KernelCosts::token_mean>(
        [](const Array& from, Array& y) {
          y.clear();
          for (std::int64_t i = 0; i < from.count(); ++i) {
            y[i / (from.size(1) * from.size(2)) * from.size(2) + i % from.size(2)] += from[i];
          }
          for (Counted& mean : y.elements) {
            mean = mean / static_cast<double>(from.size(1));
          }
        },
        x, unwritten({shape[0], width}));
    expect_cost<&Kernels::token_mean_grad, &KernelCosts::token_mean_grad>(
        [](const Array& grad, Array& grad_x) {
          const auto tokens = static_cast<double>(grad_x.size(1));
          for (std::int64_t i = 0; i < grad_x.count(); ++i) {
            const std::int64_t n = i / (grad_x.size(1) * grad_x.size(2));
            grad_x[i] = grad[n * grad_x.size(2) + i % grad_x.size(2)] / tokens;
          }
        },
        random_tensor({shape[0], width}, "grad"), unwritten(shape));
  }
}

TEST(KernelCosts, EmbeddingAndDropout) {
  const Tensor tokens = test::random_labels(9, 6);
  expect_cost<&Kernels::embedding, &KernelCosts::embedding>(
      [](const Array& token, const Array& weight, Array& y) {
        for (std::int64_t i = 0; i < y.count(); ++i) {
          y[i] = weight[token.index(i / y.size(1)) * y.size(1) + i % y.size(1)];
        }
      },
      tokens, random_tensor({6, 5}, "weight"), unwritten({9, 5}));
  expect_cost<&Kernels::embedding_grad, &KernelCosts::embedding_grad>(
      [](const Array& grad, const Array& token, Array& grad_weight) {
        grad_weight.clear();
        for (std::int64_t i = 0; i < grad.count(); ++i) {
          grad_weight[token.index(i / grad.size(1)) * grad.size(1) + i % grad.size(1)] += grad[i];
        }
      },
      random_tensor({9, 5}, "grad"), tokens, unwritten({6, 5}));
  expect_cost<&Kernels::dropout, &KernelCosts::dropout>(
      [](const Array& x, const DropoutMask& mask, Array& y) {
        for (std::int64_t i = 0; i < x.count(); ++i) {
          const auto e = static_cast<std::uint64_t>(i % x.size(1));
          const auto n = static_cast<std::uint64_t>(i / x.size(1));
          const bool drops = Philox::unit(mask.random.block(e / 4, mask.first + n)[e % 4]) < mask.probability;
          y[i] = 1 / (1 - mask.probability) * x[i];  // counted for all elements
          y[i].value *= drops ? 0 : 1;
        }
      },
      random_tensor({6, 7}, "x"), DropoutMask{0.25, Philox(3), 8}, unwritten({6, 7}));
}

// ---- Optimizer steps

/// Parameters of 5 and of 12 elements, each with `states` tensors of state.
std::vector<ParameterUpdate> made_updates(int states) {
  std::vector<ParameterUpdate> updates;
  for (const Shape& shape : {Shape{5}, Shape{3, 4}}) {
    ParameterUpdate update{
        random_tensor(shape, "grad"), random_tensor(shape, "parameter"), {}, Tensor::full({}, 1, DType::int32)};
    for (int i = 0; i < states; ++i) {
      update.state.push_back(Tensor::full(shape, 0.25, DType::float64));
    }
    updates.push_back(update);
  }
  return updates;
}

/// Compares the cost of a step, and the parameters after it, with those of `plain`(grad, parameter, state).
template <class Plain, class Run>
void expect_step(const KernelCost& cost, std::vector<ParameterUpdate>& updates, std::int64_t count_bytes,
                 const Plain& plain, const Run& run) {
  std::vector<Array> expected;
  std::int64_t state_bytes = 0;
  std::int64_t parameter_bytes = 0;
  Counted::operations = 0;
  for (const ParameterUpdate& update : updates) {
    const Array grad(update.grad);
    Array parameter(update.parameter);
    std::vector<Array> state(update.state.begin(), update.state.end());
    for (std::int64_t i = 0; i < grad.count(); ++i) {
      plain(grad[i], parameter[i], state, i);
    }
    expected.push_back(parameter);
    parameter_bytes += 8 * grad.count();
    state_bytes += 8 * grad.count() * static_cast<std::int64_t>(state.size());
  }
  EXPECT_EQ(cost.flops, Counted::operations);
  EXPECT_EQ(cost.bytes_read, 2 * parameter_bytes + state_bytes + count_bytes);
  EXPECT_EQ(cost.bytes_written, parameter_bytes + state_bytes);
  run();
  for (std::size_t n = 0; n < updates.size(); ++n) {
    const std::vector<double> values = test::values_of(updates[n].parameter);
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(values[i], expected[n].elements[i].value, 1e-9);
    }
  }
}

TEST(KernelCosts, SgdSteps) {
  for (const double momentum : {0.0, 0.9}) {
    const SgdSettings settings{.learning_rate = 0.1, .momentum = momentum, .weight_decay = 0.01};
    std::vector<ParameterUpdate> updates = made_updates(momentum == 0 ? 0 : 1);
    expect_step(
        kernel_costs().sgd_step(updates, settings), updates, 0,
        [&](Counted grad, Counted& parameter, std::vector<Array>& state, std::int64_t i) {
          const Counted direction = grad + settings.weight_decay * parameter;
          if (momentum == 0) {
            parameter -= settings.learning_rate * direction;
          } else {
            state[0][i] = momentum * state[0][i] + direction;
            parameter -= settings.learning_rate * state[0][i];
          }
        },
        [&] { kernels({}).sgd_step(updates, settings); });
  }
}

TEST(KernelCosts, AdamSteps) {
  const AdamSettings s{.weight_decay = 0.01};
  std::vector<ParameterUpdate> updates = made_updates(2);  // their first step
  const double rate = s.learning_rate / (1 - s.beta1);
  const double root = std::sqrt(1 - s.beta2);
  expect_step(
      kernel_costs().adam_step(updates, s), updates, 2 * 4,
      [&](Counted grad, Counted& parameter, std::vector<Array>& state, std::int64_t i) {
        const Counted direction = grad + s.weight_decay * parameter;
        state[0][i] = s.beta1 * state[0][i] + (1 - s.beta1) * direction;
        state[1][i] = s.beta2 * state[1][i] + (1 - s.beta2) * direction * direction;
        parameter -= rate * state[0][i] / (sqrt(state[1][i]) / root + s.epsilon);
      },
      [&] { kernels({}).adam_step(updates, s); });
  updates.resize(49, updates.front());
  EXPECT_EQ(kernel_costs().adam_step(updates, s).cuda.launches, 2);
}

TEST(KernelCosts, AdamStepsWithDecoupledDecay) {
  const AdamSettings s{.weight_decay = 0.01, .decoupled_decay = true};
  std::vector<ParameterUpdate> updates = made_updates(2);
  const double kept = 1 - s.learning_rate * s.weight_decay;
  expect_step(
      kernel_costs().adam_step(updates, s), updates, 2 * 4,
      [&](Counted grad, Counted& parameter, std::vector<Array>& state, std::int64_t i) {
        state[0][i] = s.beta1 * state[0][i] + (1 - s.beta1) * grad;
        state[1][i] = s.beta2 * state[1][i] + (1 - s.beta2) * grad * grad;
        parameter = kept * parameter - s.learning_rate / (1 - s.beta1) * state[0][i] /
                                           (sqrt(state[1][i]) / std::sqrt(1 - s.beta2) + s.epsilon);
      },
      [&] { kernels({}).adam_step(updates, s); });
}

TEST(KernelCosts, AdagradSteps) {
  const AdagradSettings s{.learning_rate = 0.1, .weight_decay = 0.01};
  std::vector<ParameterUpdate> updates = made_updates(1);
  expect_step(
      kernel_costs().adagrad_step(updates, s), updates, 0,
      [&](Counted grad, Counted& parameter, std::vector<Array>& state, std::int64_t i) {
        const Counted direction = grad + s.weight_decay * parameter;
        state[0][i] += direction * direction;
        parameter -= s.learning_rate * direction / (sqrt(state[0][i]) + s.epsilon);
      },
      [&] { kernels({}).adagrad_step(updates, s); });
}

/// Their workspace and launches on the backends, too.
TEST(KernelCosts, SumsOfSquaresAndClipping) {
  for (const Device device : test::devices()) {
    std::vector<Tensor> gradients;
    for (int i = 0; i < 130; ++i) {
      gradients.push_back(random_tensor({i % 2 == 0 ? 5 : 3000}, "grad").to(device));
    }
    Tensor sums = unwritten({130}).to(device);
    const auto measured = [&](const KernelCost& cost, const auto& run) {
      allocator(device).reset_peak();
      const std::size_t before = allocator(device).stats().current_bytes;
      const long work = test::pieces_of_work == nullptr ? 0 : test::pieces_of_work();
      run();
      const auto workspace = static_cast<std::int64_t>(allocator(device).stats().peak_bytes - before);
      EXPECT_GE(workspace, cost.on(device.type).workspace_bytes);
      EXPECT_LE(workspace, cost.on(device.type).workspace_bytes + 1024);
      if (device.type == DeviceType::cuda && test::pieces_of_work != nullptr) {
        EXPECT_EQ(cost.cuda.launches, test::pieces_of_work() - work);
      }
    };
    const std::int64_t elements = 65 * 3005;
    const KernelCost cost = kernel_costs().sums_of_squares(gradients, sums);
    EXPECT_EQ(cost.flops, 2 * elements);
    EXPECT_EQ(cost.bytes_read, 8 * elements);
    EXPECT_EQ(cost.bytes_written, 8 * 130);
    measured(cost, [&] { kernels(device).sums_of_squares(gradients, sums); });
    const KernelCost clip = kernel_costs().clip_to_norm(sums, 0.5, gradients);
    EXPECT_EQ(clip.flops, elements + 130 + 4);
    EXPECT_EQ(clip.bytes_read, 8 * elements + 8 * 130);
    EXPECT_EQ(clip.bytes_written, 8 * elements);
    measured(clip, [&] { kernels(device).clip_to_norm(sums, 0.5, gradients); });
  }
}

}  // namespace
}  // namespace stagecoach
