#include "nn/optimizer.h"

#include <cmath>

#include "core/autograd/backward.h"
#include "core/base/error.h"
#include "core/ops.h"
#include "nn/models.h"
#include "nn/safetensors.h"
#include "nn/tied_weights.h"
#include "tests/support/devices.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::random_tensor;
using test::same_bytes;
using test::TemporaryFolder;

constexpr std::int64_t kSize = 7;
constexpr int kUpdates = 6;

Tensor make_parameter(Device device = {}) { return test::random_leaf({kSize}, "parameter", DType::float64, device); }

/// Gradients that differ from step to step.
Tensor gradient(int step, Device device = {}) {
  return random_tensor({kSize}, fmt::format("gradient {}", step), DType::float64, device);
}

constexpr OptimizerKind kKinds[] = {OptimizerKind::sgd, OptimizerKind::adam, OptimizerKind::adamw,
                                    OptimizerKind::adagrad};

const char* name_of(OptimizerKind kind) {
  constexpr const char* kNames[] = {"sgd", "adam", "adamw", "adagrad"};
  return kNames[static_cast<int>(kind)];
}

class OnDevices : public testing::TestWithParam<Device> {
 protected:
  static Device device() { return GetParam(); }
  static Tensor make_parameter() { return stagecoach::make_parameter(device()); }
  static Tensor gradient(int step) { return stagecoach::gradient(step, device()); }
};
class SgdSteps : public OnDevices {};
class AdamSteps : public OnDevices {};
class Optimizers : public OnDevices {};
INSTANTIATE_TEST_SUITE_P(Devices, SgdSteps, testing::ValuesIn(test::devices()), test::device_name);
INSTANTIATE_TEST_SUITE_P(Devices, AdamSteps, testing::ValuesIn(test::devices()), test::device_name);
INSTANTIATE_TEST_SUITE_P(Devices, Optimizers, testing::ValuesIn(test::devices()), test::device_name);

/// One device's side of a head that is tied to an embedding: by hand, and by an optimizer that does it in each step.
TEST(TiedWeights, StayTheSameInEachStep) {
  const auto train = [](bool by_optimizer) {
    const NamedTensors all{{"first", test::random_leaf({kSize}, "first", DType::float32, {})},
                           {"copy", test::random_leaf({kSize}, "copy", DType::float32, {})}};
    TiedWeights tied(all, {{"first", "copy"}});
    EXPECT_TRUE(same_bytes(all[0].second, all[1].second));
    Sgd optimizer(tied.without_copies(all), {.learning_rate = 0.1, .momentum = 0.9});
    optimizer.clip_norm(0.5);  // of the sum: a copy counts no second time
    if (by_optimizer) {
      tie(optimizer, tied);
    }
    for (int step = 0; step < kUpdates; ++step) {
      for (const auto& [name, parameter] : all) {
        Tensor(parameter).set_grad(random_tensor({kSize}, fmt::format("{} {}", name, step), DType::float32));
      }
      if (!by_optimizer) {
        tied.sum_gradients();
      }
      optimizer.step();
      if (!by_optimizer) {
        tied.copy_values();
      }
      EXPECT_TRUE(same_bytes(all[0].second, all[1].second));
      EXPECT_FALSE(all[1].second.grad().defined());
      optimizer.zero_grad();
    }
    return all[0].second;
  };
  EXPECT_TRUE(same_bytes(train(true), train(false)));
}

void expect_near(const Tensor& parameter, const std::vector<double>& expected) {
  const auto values = parameter.to_vector<double>();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(values[i], expected[i], 1e-14);
  }
}

/// The plain loop, as PyTorch documents SGD; compared after each step.
void compare_sgd(Device device, const SgdSettings& settings) {
  Tensor parameter = make_parameter(device);
  Sgd optimizer({{"p", parameter}}, settings);
  std::vector<double> p = parameter.to_vector<double>();
  std::vector<double> v(p.size(), 0);
  for (int step = 1; step <= kUpdates; ++step) {
    parameter.set_grad(gradient(step, device));
    optimizer.step();
    const auto g = gradient(step).to_vector<double>();
    for (std::size_t i = 0; i < p.size(); ++i) {
      v[i] = settings.momentum * v[i] + (g[i] + settings.weight_decay * p[i]);
      p[i] -= settings.learning_rate * v[i];
    }
    expect_near(parameter, p);
  }
  EXPECT_EQ(optimizer.steps_done(), kUpdates);
}

TEST_P(SgdSteps, FollowThePlainLoop) { compare_sgd(device(), {.learning_rate = 0.1}); }
TEST_P(SgdSteps, FollowThePlainLoopWithMomentum) { compare_sgd(device(), {.learning_rate = 0.1, .momentum = 0.9}); }
TEST_P(SgdSteps, FollowThePlainLoopWithWeightDecay) {
  compare_sgd(device(), {.learning_rate = 0.1, .weight_decay = 0.2});
}
TEST_P(SgdSteps, FollowThePlainLoopWithBoth) {
  compare_sgd(device(), {.learning_rate = 0.1, .momentum = 0.5, .weight_decay = 0.2});
}

/// Kingma and Ba 2015, algorithm 1, or Loshchilov and Hutter 2019, algorithm 2, written out; compared after each step.
void compare_adam(Device device, const AdamSettings& settings) {
  Tensor parameter = make_parameter(device);
  Adam optimizer({{"p", parameter}}, settings);
  std::vector<double> p = parameter.to_vector<double>();
  std::vector<double> m(p.size(), 0);
  std::vector<double> v(p.size(), 0);
  for (int step = 1; step <= 50; ++step) {
    parameter.set_grad(gradient(step, device));
    optimizer.step();
    const auto g = gradient(step).to_vector<double>();
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double d = g[i] + (settings.decoupled_decay ? 0 : settings.weight_decay * p[i]);
      p[i] -= settings.decoupled_decay ? settings.learning_rate * settings.weight_decay * p[i] : 0;
      m[i] = settings.beta1 * m[i] + (1 - settings.beta1) * d;
      v[i] = settings.beta2 * v[i] + (1 - settings.beta2) * d * d;
      const double m_hat = m[i] / (1 - std::pow(settings.beta1, step));
      const double v_hat = v[i] / (1 - std::pow(settings.beta2, step));
      p[i] -= settings.learning_rate * m_hat / (std::sqrt(v_hat) + settings.epsilon);
    }
    expect_near(parameter, p);
  }
}

TEST_P(AdamSteps, FollowThePlainLoop) { compare_adam(device(), {.learning_rate = 0.1}); }
TEST_P(AdamSteps, FollowThePlainLoopWithWeightDecay) {
  compare_adam(device(), {.learning_rate = 0.1, .weight_decay = 0.3});
}
TEST_P(AdamSteps, FollowThePlainLoopWithDecoupledWeightDecay) {
  compare_adam(device(), {.learning_rate = 0.1, .weight_decay = 0.3, .decoupled_decay = true});
}
TEST_P(AdamSteps, FollowThePlainLoopWithOtherSettings) {
  compare_adam(device(), {.learning_rate = 0.01, .beta1 = 0.5, .beta2 = 0.8, .epsilon = 1e-3});
}
/// In float32 each step is that of double precision to 1e-6 of its length: 1 - beta2 is made in double.
TEST_P(AdamSteps, InFloat32AreThoseOfDoublePrecision) {
  Tensor exact = Tensor::zeros({kSize}, DType::float64, device()).set_requires_grad(true);
  Tensor rounded = Tensor::zeros({kSize}, DType::float32, device()).set_requires_grad(true);
  Adam in_double({{"p", exact}});
  Adam in_float({{"p", rounded}});
  for (int step = 1; step <= kUpdates; ++step) {
    std::vector<float> gradients;  // of one sign per element: nothing cancels
    for (int i = 0; i < kSize; ++i) {
      gradients.push_back(std::ldexp(static_cast<float>((i % 2 == 0 ? 1 : -1) * (3 + i + step)), -i));
    }
    rounded.set_grad(Tensor::from(gradients, {kSize}, device()));
    exact.set_grad(Tensor::from(std::vector<double>(gradients.begin(), gradients.end()), {kSize}, device()));
    in_double.step();
    in_float.step();
    const auto expected = exact.to_vector<double>();
    const auto got = rounded.to_vector<float>();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(got[i]), expected[i], 1e-6 * std::abs(expected[i])) << "step " << step;
    }
  }
}

/// The bias correction makes the first step as long as the learning rate, whatever the gradient.
TEST_P(AdamSteps, FirstIsTheLearningRate) {
  Tensor parameter = make_parameter();
  const auto before = parameter.to_vector<double>();
  Adam optimizer({{"p", parameter}}, {.learning_rate = 0.1, .epsilon = 1e-12});
  parameter.set_grad(gradient(1));
  optimizer.step();
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_NEAR(std::abs(parameter.to_vector<double>()[i] - before[i]), 0.1, 1e-9);
  }
}

TEST_P(Optimizers, OfAdagradFollowThePlainLoop) {
  Tensor parameter = make_parameter();
  const AdagradSettings settings{.learning_rate = 0.1, .weight_decay = 0.2};
  Adagrad optimizer({{"p", parameter}}, settings);
  std::vector<double> p = parameter.to_vector<double>();
  std::vector<double> sum(p.size(), 0);
  for (int step = 1; step <= 50; ++step) {
    parameter.set_grad(gradient(step));
    optimizer.step();
    const auto g = gradient(step).to_vector<double>();
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double d = g[i] + settings.weight_decay * p[i];
      sum[i] += d * d;
      p[i] -= settings.learning_rate * d / (std::sqrt(sum[i]) + settings.epsilon);
    }
    expect_near(parameter, p);
  }
}

/// As PyTorch's parameter groups in nanoGPT: what has one dimension does not decay.
TEST_P(Optimizers, DecayWeightsOnly) {
  for (const OptimizerKind kind : kKinds) {
    const auto step = [&](const Shape& shape, double decay, bool weights_only) {
      Tensor parameter = test::random_leaf(shape, "parameter", DType::float64, device());
      const auto optimizer = make_optimizer(kind, {{"p", parameter}}, 0.1, 0, decay);
      if (weights_only) {
        optimizer->decay_weights_only();
      }
      parameter.set_grad(random_tensor(shape, "gradient", DType::float64, device()));
      optimizer->step();
      return parameter;
    };
    EXPECT_TRUE(same_bytes(step({6}, 0.5, true), step({6}, 0, false))) << name_of(kind);
    EXPECT_TRUE(same_bytes(step({2, 3}, 0.5, true), step({2, 3}, 0.5, false))) << name_of(kind);
    EXPECT_FALSE(same_bytes(step({2, 3}, 0.5, true), step({2, 3}, 0, false))) << name_of(kind);
  }
}

/// A group of one's own, by names.
TEST_P(Optimizers, DecayOnlyWhatIsChosen) {
  for (const OptimizerKind kind : kKinds) {
    const auto step = [&](double decay, const std::string& decayed) {
      NamedTensors parameters;
      for (const char* name : {"embedding", "head"}) {
        parameters.emplace_back(name, test::random_leaf({6}, name, DType::float64, device()));
      }
      const auto optimizer = make_optimizer(kind, parameters, 0.1, 0, decay);
      optimizer->decay_only(
          [&](const std::string& name, const Tensor& parameter) { return name == decayed && parameter.dims() == 1; });
      for (auto& [name, parameter] : parameters) {
        parameter.set_grad(random_tensor({6}, "gradient", DType::float64, device()));
      }
      optimizer->step();
      return parameters;
    };
    const NamedTensors chosen = step(0.5, "head"), without = step(0, "");
    EXPECT_TRUE(same_bytes(chosen[0].second, without[0].second)) << name_of(kind);
    EXPECT_FALSE(same_bytes(chosen[1].second, without[1].second)) << name_of(kind);
  }
}

TEST_P(Optimizers, SkipAParameterWithoutGradient) {
  for (const OptimizerKind kind : kKinds) {
    Tensor a = make_parameter();
    Tensor b = make_parameter();
    const auto optimizer = make_optimizer(kind, {{"a", a}, {"b", b}}, 0.1, 0, 0.5);
    const auto before = b.to_vector<double>();
    a.set_grad(gradient(1));
    optimizer->step();
    EXPECT_EQ(b.to_vector<double>(), before) << name_of(kind);
    EXPECT_NE(a.to_vector<double>(), before) << name_of(kind);
    EXPECT_EQ(optimizer->steps_done(), 1);
  }
}

/// As in PyTorch: b's first update comes in the second step, and is corrected as a first one.
TEST_P(Optimizers, CountUpdatesForEachParameter) {
  for (const OptimizerKind kind : kKinds) {
    const double momentum = kind == OptimizerKind::sgd ? 0.9 : 0;
    Tensor late = make_parameter();
    Tensor other = make_parameter();
    const auto optimizer = make_optimizer(kind, {{"late", late}, {"other", other}}, 0.1, momentum);
    other.set_grad(gradient(1));
    optimizer->step();
    optimizer->zero_grad();
    late.set_grad(gradient(1));
    optimizer->step();
    EXPECT_TRUE(same_bytes(late, other)) << name_of(kind);
  }
}

TEST_P(Optimizers, ForgetGradients) {
  Tensor parameter = make_parameter();
  Sgd optimizer({{"p", parameter}});
  parameter.set_grad(gradient(1));
  optimizer.zero_grad();
  EXPECT_FALSE(parameter.grad().defined());
}

TEST_P(Optimizers, WriteInPlaceSoAnOlderGraphIsRefused) {
  const auto model = make_model("toy");
  model->materialize(1, device());
  Sgd optimizer(model->named_parameters());
  const Tensor y = model->forward(random_tensor({2, 4}, "x", DType::float32, device()));
  const Tensor storage = model->named_parameters()[2].second;
  const void* before = storage.raw_data();
  backward(y, random_tensor({2, 2}, "grad", DType::float32, device()), RetainGraph::yes);
  optimizer.step();
  EXPECT_EQ(storage.raw_data(), before);
  EXPECT_TRUE(fails_with<Error>({"was modified after the forward"}, [&] {
    backward(y, random_tensor({2, 2}, "grad", DType::float32, device()));
  }));
}

TEST_P(Optimizers, ChangeTheirLearningRate) {
  Tensor parameter = make_parameter();
  const auto optimizer = make_optimizer(OptimizerKind::sgd, {{"p", parameter}}, 0.1);
  optimizer->set_learning_rate(0.5);
  EXPECT_EQ(optimizer->learning_rate(), 0.5);
  const auto before = parameter.to_vector<double>();
  parameter.set_grad(gradient(1));
  optimizer->step();
  EXPECT_NEAR(parameter.to_vector<double>()[0], before[0] - 0.5 * gradient(1).to_vector<double>()[0], 1e-15);
}

TEST(Optimizer, RefusesSenselessSettings) {
  const NamedTensors parameters{{"p", make_parameter()}};
  const auto make = [&](OptimizerKind kind, double rate, double momentum, double decay) {
    return [=] { make_optimizer(kind, parameters, rate, momentum, decay); };
  };
  EXPECT_TRUE(fails_with<UsageError>({"no momentum"}, make(OptimizerKind::adam, 0.1, 0.9, 0)));
  EXPECT_TRUE(fails_with<UsageError>({"learning rate"}, make(OptimizerKind::sgd, -1, 0, 0)));
  EXPECT_TRUE(fails_with<UsageError>({"learning rate"}, make(OptimizerKind::sgd, std::nan(""), 0, 0)));
  EXPECT_TRUE(fails_with<UsageError>({"momentum"}, make(OptimizerKind::sgd, 0.1, 1, 0)));
  EXPECT_TRUE(fails_with<UsageError>({"weight decay"}, make(OptimizerKind::adam, 0.1, 0, -1)));
  EXPECT_THROW(Adam(parameters, {.beta2 = 1}), UsageError);
  EXPECT_THROW(Adam(parameters, {.epsilon = 0}), UsageError);
  EXPECT_THROW(Adagrad(parameters, {.epsilon = 0}), UsageError);
  EXPECT_THROW(Sgd(parameters).clip_norm(0), UsageError);
}

TEST(Optimizer, RefusesWhatIsNoParameter) {
  const Tensor parameter = make_parameter();
  EXPECT_THROW(Sgd({{"p", Tensor::zeros({1})}}), Error);
  EXPECT_THROW(Sgd({{"p", scale(parameter, 2)}}), Error);
  EXPECT_THROW(Sgd({{"a", parameter}, {"b", parameter}}), Error);
  EXPECT_THROW(Sgd({{"a", parameter}, {"a", make_parameter()}}), Error);
}

/// One training step of the toy model on its own data of that step.
void train_step(Sequential& model, Optimizer& optimizer, int step) {
  const Device device = optimizer.parameters().front().second.device();
  optimizer.zero_grad();
  const auto random = [&](const Shape& shape, const char* name) {
    return random_tensor(shape, fmt::format("{} {}", name, step), DType::float32, device);
  };
  const Tensor y = model.forward(random({4, 4}, "x"));
  backward(mean_squared_error(y, random({4, 2}, "target")));
  optimizer.step();
}

/// Idea 6: a training that is saved, loaded and continued equals the uninterrupted one bit for bit.
TEST_P(Optimizers, ContinueFromTheirSavedStateBitForBit) {
  const TemporaryFolder folder;
  for (const OptimizerKind kind : kKinds) {
    const double momentum = kind == OptimizerKind::sgd ? 0.9 : 0;
    const auto make_state = [&](Sequential& model) {
      return make_optimizer(kind, model.named_parameters(), 0.05, momentum, 0.01);
    };
    const auto model = make_model("toy");
    model->materialize(1, device());
    const auto optimizer = make_state(*model);
    for (int step = 0; step < 3; ++step) {
      train_step(*model, *optimizer, step);
    }
    save_tensors(folder.file("state"), {optimizer->state(), {}});
    save_tensors(folder.file("weights"), {model->named_parameters(), {}});

    const auto resumed = make_model("toy");
    resumed->materialize(2, device());
    copy_by_name(load_tensors(folder.file("weights")).tensors, resumed->named_parameters(), "weights");
    const auto resumed_optimizer = make_state(*resumed);
    resumed_optimizer->load_state(load_tensors(folder.file("state")).tensors);
    EXPECT_EQ(resumed_optimizer->steps_done(), 3);

    for (int step = 3; step < 6; ++step) {
      train_step(*model, *optimizer, step);
      train_step(*resumed, *resumed_optimizer, step);
    }
    const NamedTensors expected = optimizer->state();
    const NamedTensors state = resumed_optimizer->state();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(same_bytes(state[i].second, expected[i].second)) << name_of(kind) << ' ' << expected[i].first;
    }
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_TRUE(same_bytes(resumed->named_parameters()[i].second, model->named_parameters()[i].second))
          << name_of(kind);
    }
  }
}

/// Each parameter is updated on its own device, as if all were on one.
TEST(Optimizer, UpdatesParametersOnSeveralDevices) {
  for (const OptimizerKind kind : kKinds) {
    NamedTensors together, spread;
    for (const char* name : {"a", "b", "c"}) {
      together.emplace_back(name, make_parameter());
      spread.emplace_back(name, make_parameter(test::fresh_device()));
    }
    const auto expected = make_optimizer(kind, together, 0.1);
    const auto optimizer = make_optimizer(kind, spread, 0.1);
    for (int step = 0; step < kUpdates; ++step) {
      for (std::size_t i = 0; i < spread.size(); ++i) {
        together[i].second.set_grad(gradient(step));
        spread[i].second.set_grad(gradient(step, spread[i].second.device()));
      }
      expected->step();
      optimizer->step();
    }
    for (std::size_t i = 0; i < spread.size(); ++i) {
      EXPECT_TRUE(same_bytes(spread[i].second, together[i].second));
    }
    EXPECT_EQ(optimizer->steps_done(), kUpdates);
  }
}

TEST(Optimizer, RefusesTheStateOfAnotherOptimizer) {
  const NamedTensors parameters{{"p", make_parameter()}};
  Adam adam(parameters);
  Sgd sgd(parameters, {.momentum = 0.9});
  EXPECT_TRUE(fails_with<DataError>({"missing: p.first_moment", "unexpected: p.velocity"},
                                    [&] { adam.load_state(sgd.state()); }));
}

TEST_P(Optimizers, SumOfSquares) {
  EXPECT_EQ(sum_of_squares(Tensor::from<float>({1, 2}, {2}, device())), 5);
  EXPECT_EQ(sum_of_squares(Tensor::from<double>({2}, {1}, device())), 4);
}

TEST(SumOfSquares, AddsInDouble) {
  Tensor values = Tensor::full({1'000'001}, 1e-4);  // in float32, 1 + 1e-8 is 1
  values.mutable_data<float>()[0] = 1;
  EXPECT_NEAR(sum_of_squares(values), 1.01, 1e-8);
}

}  // namespace
}  // namespace stagecoach
