// Optimizer steps: many parameters of many sizes in one call, more than one launch of a kernel can name.

#include "tests/core/kernel_twins.h"

namespace stagecoach {
namespace {

using test::kCuda;
using test::Tensors;

/// The parameter is the type of the first parameter; every third one has the other type.
class StepTwins : public test::KernelTwins {
 protected:
  /// Gradient, value, state and count of `parameters` parameters, one after another.
  static Tensors updates_of(int parameters, int states) {
    const std::int64_t sizes[] = {1, 0, 7, 256, 3, 257, 64, 1009, 2, 31};
    const DType other = type() == DType::float32 ? DType::float64 : DType::float32;
    Tensors all;
    for (int i = 0; i < parameters; ++i) {
      const Shape shape = i % 10 == 0 ? Shape{} : Shape{sizes[i % 10]};
      const DType dtype = i % 3 == 2 ? other : type();
      all.push_back(test::random_tensor(shape, fmt::format("grad {}", i), dtype));
      all.push_back(test::random_tensor(shape, fmt::format("parameter {}", i), dtype));
      for (int state = 0; state < states; ++state) {  // squares, as a second moment is
        const auto root = test::values_of(test::random_tensor(shape, fmt::format("state {} {}", state, i), dtype));
        std::vector<double> values;
        for (const double value : root) {
          values.push_back(value * value);
        }
        all.push_back(test::typed(values, shape, dtype));
      }
      all.push_back(Tensor::full({}, 1 + i % 5, DType::int32));
    }
    return all;
  }

  /// The same as the kernels take them.
  static std::vector<ParameterUpdate> as_updates(const Tensors& tensors, int states) {
    std::vector<ParameterUpdate> updates;
    const auto step = static_cast<std::size_t>(states) + 3;
    for (std::size_t i = 0; i + step <= tensors.size(); i += step) {
      const auto at = tensors.begin() + static_cast<std::ptrdiff_t>(i);
      updates.push_back({at[0], at[1], Tensors(at + 2, at + 2 + states), at[2 + states], i % 2 == 0});
    }
    return updates;
  }
};
STAGECOACH_KERNEL_TWINS(StepTwins);

TEST_P(StepTwins, Sgd) {
  for (const SgdSettings& settings :
       {SgdSettings{0.1, 0, 0}, SgdSettings{0.1, 0, 0.2}, SgdSettings{0.1, 0.9, 0}, SgdSettings{0.1, 0.5, 0.2}}) {
    const int states = settings.momentum == 0 ? 0 : 1;
    for (const int parameters : {0, 1, 2, 70, 131}) {
      SCOPED_TRACE(
          fmt::format("{} parameters, momentum {}, decay {}", parameters, settings.momentum, settings.weight_decay));
      expect_twins(updates_of(parameters, states), [&](const Kernels& k, Tensors& t) {
        auto updates = as_updates(t, states);
        k.sgd_step(updates, settings);
      });
    }
  }
}

TEST_P(StepTwins, Adam) {
  for (const AdamSettings& settings :
       {AdamSettings{}, AdamSettings{0.1, 0.5, 0.8, 1e-3, 0.3}, AdamSettings{0.1, 0.5, 0.8, 1e-3, 0.3, true}}) {
    for (const int parameters : {0, 1, 2, 70, 131}) {
      SCOPED_TRACE(fmt::format("{} parameters, decay {}", parameters, settings.weight_decay));
      expect_twins(updates_of(parameters, 2), [&](const Kernels& k, Tensors& t) {
        auto updates = as_updates(t, 2);
        k.adam_step(updates, settings);
      });
    }
  }
}

TEST_P(StepTwins, Adagrad) {
  for (const AdagradSettings& settings : {AdagradSettings{}, AdagradSettings{0.1, 1e-3, 0.3}}) {
    for (const int parameters : {0, 1, 70}) {
      SCOPED_TRACE(fmt::format("{} parameters, decay {}", parameters, settings.weight_decay));
      expect_twins(updates_of(parameters, 1), [&](const Kernels& k, Tensors& t) {
        auto updates = as_updates(t, 1);
        k.adagrad_step(updates, settings);
      });
    }
  }
}

/// Tensors of one type, with blocks of 1,024 elements that are full or not.
Tensors gradients_of_sizes(int count, DType dtype) {
  const std::int64_t sizes[] = {5000, 0, 1, 1024, 1023, 1025, 33, 7};
  Tensors gradients;
  for (int i = 0; i < count; ++i) {
    gradients.push_back(test::random_tensor({sizes[i % 8]}, fmt::format("grad {}", i), dtype));
  }
  return gradients;
}

/// Squares of float32 are exact in float64 and added in one order everywhere, so every device finds the same bytes.
TEST_P(StepTwins, SumsOfSquaresHaveTheSameBytes) {
  const bool is_cuda = GetParam().level == nullptr;
  for (const int count : {0, 1, 8, 129, 300}) {
    Tensors tensors = gradients_of_sizes(count, type());
    tensors.push_back(test::unset({count}, DType::float64));
    const auto sum = [](const Kernels& k, Tensors& t) {
      k.sums_of_squares(std::span(t).first(t.size() - 1), t.back());
    };
    expect_twins(tensors, sum, 64);
    if (type() == DType::float32) {
      Tensors cpu;
      Tensors own;
      for (const Tensor& tensor : tensors) {
        cpu.push_back(tensor.clone());
        own.push_back(is_cuda ? tensor.to(kCuda) : tensor.clone());
      }
      sum(kernels(Device{}), cpu);
      sum(is_cuda ? kernels(kCuda) : GetParam().level->tables()->kernels, own);
      EXPECT_TRUE(test::same_bytes(own.back(), cpu.back())) << count;
    }
  }
}

TEST_P(StepTwins, ClipToNorm) {
  for (const int count : {0, 1, 8, 300}) {
    for (const double max_norm : {0.5, 1e6}) {
      Tensors tensors = gradients_of_sizes(count, type());
      tensors.push_back(test::typed(std::vector<double>{0.25, 1.5, 7}, {3}, DType::float64));
      expect_twins(tensors, [=](const Kernels& k, Tensors& t) {
        k.clip_to_norm(t.back(), max_norm, std::span(t).first(t.size() - 1));
      });
    }
  }
}

// Moments that begin with zeros, the count going on from step to step, as in a training.
TEST_P(StepTwins, SeveralAdamSteps) {
  Tensors tensors = updates_of(12, 2);
  for (std::size_t i = 0; i < tensors.size(); i += 5) {
    tensors[i + 2].fill(0);
    tensors[i + 3].fill(0);
    tensors[i + 4].fill(0);
  }
  expect_twins(
      tensors,
      [&](const Kernels& k, Tensors& t) {
        auto updates = as_updates(t, 2);
        Tensors counters;
        for (const ParameterUpdate& update : updates) {
          counters.push_back(update.count);
        }
        for (int step = 0; step < 4; ++step) {
          k.increment(counters);
          k.adam_step(updates, {.learning_rate = 0.1});
        }
      },
      4);
}

}  // namespace
}  // namespace stagecoach
