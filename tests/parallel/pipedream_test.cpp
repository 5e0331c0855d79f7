// PipeDream's policies against a sequential program in plain form that knows only the rule: which stage uses the
// weights of which update. Parameters, gradient norms and losses are equal, bit for bit.

#include "parallel/schedule/pipedream.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "core/ops.h"
#include "nn/layers.h"
#include "nn/optimizer.h"
#include "parallel/data_parallel/average_gradients.h"
#include "parallel/launch/launch.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/pipeline/split.h"
#include "parallel/pipeline/weight_versions.h"
#include "parallel/schedule/ledger.h"
#include "parallel/schedule/lower.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::random_tensor;
using test::same_bytes;

constexpr std::int64_t kWidth = 12;
constexpr std::int64_t kSamples = 3;  // a micro-batch
constexpr int kUpdates = 40;

/// 8 linear layers of equal width, each with a relu.
std::shared_ptr<Sequential> make_net() {
  auto model = std::make_shared<Sequential>();
  for (int i = 0; i < 8; ++i) {
    model->add(fmt::format("fc{}", i), std::make_shared<Linear>(kWidth, kWidth));
    model->add(fmt::format("relu{}", i), std::make_shared<ReLU>());
  }
  return model;
}

/// What to train, and how.
struct Training {
  Versions versions = Versions::stash;
  std::vector<int> replicas = {1};  // of each stage
  int batch = 1;                    // micro-batches
  int microbatches = kUpdates;
  OptimizerKind optimizer = OptimizerKind::sgd;
  Stage::Recompute recompute = Stage::Recompute::no;
  bool checks_versions = true;
  Split layers = {};  // of each stage; even if not given

  int stages() const { return static_cast<int>(replicas.size()); }
  Split split() const { return layers.empty() ? split_by_layers(16, stages()) : layers; }
};

Tensor images(int microbatch) {
  return random_tensor({kSamples, kWidth}, fmt::format("images {}", microbatch), DType::float32);
}
Tensor labels(int microbatch) {
  return Tensor::from(std::vector<std::int32_t>{microbatch % 12, microbatch * 5 % 12, microbatch / 12 % 12},
                      {kSamples});
}

std::unique_ptr<Optimizer> make_optimizer_for(const Training& training, NamedTensors parameters) {
  const bool sgd = training.optimizer == OptimizerKind::sgd;
  return make_optimizer(training.optimizer, std::move(parameters), sgd ? 0.05 : 0.01, sgd ? 0.9 : 0);
}

/// What a training leaves.
struct Trained {
  std::map<std::string, Tensor> weights;
  std::map<std::string, double> squares;  // "update/parameter": of the gradients
  std::map<int, double> losses;           // a micro-batch

  void note_gradients(int update, const NamedTensors& parameters) {
    for (const auto& [name, parameter] : parameters) {
      squares[fmt::format("{}/{}", update, name)] = sum_of_squares(parameter.grad());
    }
  }
  void note_weights(const NamedTensors& parameters) {
    for (const auto& [name, parameter] : parameters) {
      weights[name] = parameter.to(Device{}).clone();
    }
  }
};

/// One stage of the sequential program: the weights after every update, and the gradients that wait for the next one.
struct SequentialStage {
  NamedTensors parameters;
  std::unique_ptr<Optimizer> optimizer;
  std::vector<std::vector<Tensor>> history;    // an update, then a parameter
  std::vector<std::vector<Tensor>> gradients;  // a replica, then a parameter

  void set_weights(int version) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].second.copy_from(history[static_cast<std::size_t>(version)][i]);
    }
  }
  void remember() {
    history.emplace_back();
    for (const auto& [name, parameter] : parameters) {
      history.back().push_back(parameter.clone());
    }
  }
};

/// The rule of each policy: how many updates of stage s the weights have with which it runs micro-batch i.
int version_of(const Training& training, int s, int i) {
  if (training.versions == Versions::two_buffers) {
    return std::max(i / training.batch - 1, 0);
  }
  if (training.versions == Versions::flush) {
    return i / training.batch;
  }
  const int stage = training.versions == Versions::vertical ? 0 : s;
  const int n = training.replicas[static_cast<std::size_t>(stage)];
  const int ranks_from_here = std::accumulate(training.replicas.begin() + stage, training.replicas.end(), 0);
  const int warm_up = (ranks_from_here + n - 1) / n - 1;
  const int backwards = std::max(i / n - warm_up, 0);  // of this replica, before its forward of i
  return backwards / (std::lcm(training.batch, n) / n);
}

Trained sequentially(const Training& training) {
  const auto model = make_net();
  model->materialize(3);
  std::vector<SequentialStage> stages;
  for (const auto& part : stages_of(*model, training.split())) {
    SequentialStage stage;
    stage.parameters = part->named_parameters();
    stage.optimizer = make_optimizer_for(training, stage.parameters);
    stage.remember();
    stages.push_back(std::move(stage));
  }
  Trained result;
  for (int i = 0; i < training.microbatches; ++i) {
    for (int s = 0; s < training.stages(); ++s) {
      stages[static_cast<std::size_t>(s)].set_weights(version_of(training, s, i));
    }
    const Tensor loss = cross_entropy(model->forward(images(i)), labels(i), Reduction::sum);
    result.losses[i] = loss.item();
    const int batch_size = std::min(training.batch, training.microbatches - i / training.batch * training.batch);
    backward(loss, Tensor::full({}, 1.0 / static_cast<double>(kSamples * batch_size)));
    for (int s = 0; s < training.stages(); ++s) {
      SequentialStage& stage = stages[static_cast<std::size_t>(s)];
      const int n = training.replicas[static_cast<std::size_t>(s)];
      const int unit = std::lcm(training.batch, n);
      stage.gradients.resize(static_cast<std::size_t>(n));
      auto& sums = stage.gradients[static_cast<std::size_t>(i % n)];  // each replica adds up its own
      for (std::size_t k = 0; k < stage.parameters.size(); ++k) {
        const Tensor gradient = stage.parameters[k].second.grad();
        if (sums.size() <= k) {
          sums.push_back(gradient);
        } else {
          sums[k] = add(sums[k], gradient);
        }
      }
      stage.optimizer->zero_grad();
      if ((i + 1) % unit != 0 && i + 1 != training.microbatches) {
        continue;
      }
      stage.set_weights(static_cast<int>(stage.history.size()) - 1);
      const int begun = i / unit * unit;
      const int batches = (i - begun) / training.batch + 1;
      for (std::size_t k = 0; k < stage.parameters.size(); ++k) {
        Tensor sum = stage.gradients[0][k];
        for (std::size_t r = 1; r < stage.gradients.size() && !stage.gradients[r].empty(); ++r) {
          sum = add(sum, stage.gradients[r][k]);
        }
        stage.parameters[k].second.set_grad(batches > 1 ? scale(sum, 1.0 / batches) : sum.clone());
      }
      result.note_gradients(i / unit, stage.parameters);
      stage.optimizer->step();
      stage.optimizer->zero_grad();
      stage.remember();
      stage.gradients.clear();
    }
  }
  for (SequentialStage& stage : stages) {
    stage.set_weights(static_cast<int>(stage.history.size()) - 1);
    result.note_weights(stage.parameters);
  }
  return result;
}

/// What one rank does in the pipeline.
void train_rank(const Training& training, const Schedule& schedule, const Ledger& ledger, Rank& rank, Trained& result,
                std::mutex& mutex) {
  const auto unchecked = training.checks_versions ? nullptr : std::make_unique<UncheckedVersions>();
  const int number = schedule.stage_of(rank.index);
  const auto part = stages_of(*make_net(), training.split())[static_cast<std::size_t>(number)];
  part->materialize(3, rank.device);
  const NamedTensors parameters = part->named_parameters();
  const auto optimizer = make_optimizer_for(training, parameters);
  const auto replicas = rank.comm.split(number, rank.index);
  std::map<int, Stage> stages;
  stages.emplace(number, Stage(part, training.recompute));
  Pipeline pipeline(std::move(stages), std::vector<Shape>(training.replicas.size(), Shape{1, kWidth}), schedule,
                    rank.comm);
  WeightVersions weights(parameters, schedule, ledger, rank.index);
  const auto& actions = schedule.ranks[static_cast<std::size_t>(rank.index)];
  const StepData data{[&](int i) { return images(i).to(rank.device); },
                      [&](int i) { return labels(i).to(rank.device); },
                      std::vector<std::int64_t>(static_cast<std::size_t>(training.microbatches), kSamples)};
  Hooks hooks;
  hooks.see_logits = [&](int i, const Tensor& loss, const Tensor&) {
    const std::lock_guard lock(mutex);
    result.losses[i] = loss.item();
  };
  hooks.reduce = [&](const Action& reduction) {
    const int unit = schedule.microbatches_per_update(number);
    const int left = training.microbatches - reduction.microbatch * unit;
    average_gradients(parameters, (std::min(unit, left) + training.batch - 1) / training.batch, *replicas);
  };
  const auto update = [&](int which) {
    if (replicas->rank() == 0) {
      const std::lock_guard lock(mutex);
      result.note_gradients(which, parameters);
    }
    optimizer->step();
    optimizer->zero_grad();
  };
  pipeline.begin(schedule, data, hooks);
  for (std::size_t i = 0; i < actions.size(); ++i) {
    weights.choose(i);
    if (actions[i].operation == Operation::update) {
      update(actions[i].microbatch);
    } else {
      pipeline.perform(actions[i]);
    }
    weights.free_unneeded(i);
  }
  pipeline.finish();

  EXPECT_EQ(static_cast<int>(weights.peak()), peak_versions(schedule, ledger)[static_cast<std::size_t>(rank.index)]);
  EXPECT_EQ(weights.count(), 1U) << "the pipeline has drained";
  for (const auto& [name, parameter] : parameters) {
    for (const Tensor& theirs : replicas->all_gather(parameter)) {
      EXPECT_TRUE(same_bytes(theirs, parameter)) << name << " differs between the replicas of stage " << number;
    }
  }
  const std::lock_guard lock(mutex);
  if (replicas->rank() == 0) {
    result.note_weights(parameters);
  }
}

Trained in_a_pipeline(const Training& training) {
  const Schedule schedule =
      lower(pipedream_schedule(training.replicas, training.microbatches, training.batch, training.versions));
  const Ledger ledger = make_ledger(schedule, training.versions);
  Trained result;
  std::mutex mutex;
  launch({.ranks = schedule.rank_count()},
         [&](Rank& rank) { train_rank(training, schedule, ledger, rank, result, mutex); });
  return result;
}

std::string context(const Training& training) {
  return fmt::format("{} on {}, {} micro-batches, {} a batch, {}", to_string(training.versions),
                     fmt::join(training.replicas, ","), training.microbatches, training.batch,
                     training.optimizer == OptimizerKind::sgd ? "sgd" : "adam");
}

void expect_equal(const Trained& a, const Trained& b, const std::string& what) {
  ASSERT_EQ(a.weights.size(), 16U);
  ASSERT_EQ(b.weights.size(), 16U);
  EXPECT_GT(a.squares.at("0/fc0.weight"), 0) << "gradients reach the first layer";
  for (const auto& [name, weight] : a.weights) {
    EXPECT_TRUE(same_bytes(weight, b.weights.at(name))) << what << ": " << name;
  }
  EXPECT_EQ(a.squares, b.squares) << what << ": gradient norms";
  EXPECT_EQ(a.losses, b.losses) << what;
}

void expect_equals_the_oracle(const Training& training) {
  expect_equal(in_a_pipeline(training), sequentially(training), context(training));
}

std::vector<int> straight(int p) { return std::vector<int>(static_cast<std::size_t>(p), 1); }

class Pipedream : public testing::TestWithParam<OptimizerKind> {};

TEST_P(Pipedream, StashingEqualsItsOracle) {
  for (const int p : {1, 2, 3, 4, 8}) {
    expect_equals_the_oracle({.versions = Versions::stash, .replicas = straight(p), .optimizer = GetParam()});
  }
}

TEST_P(Pipedream, VerticalSyncEqualsItsOracle) {
  for (const int p : {1, 2, 3, 4, 8}) {
    expect_equals_the_oracle({.versions = Versions::vertical, .replicas = straight(p), .optimizer = GetParam()});
  }
}

TEST_P(Pipedream, TwoBuffersEqualTheirOracle) {
  for (const int p : {1, 2, 3, 4, 8}) {
    for (const int batch : {p, p + 3}) {
      expect_equals_the_oracle({.versions = Versions::two_buffers,
                                .replicas = straight(p),
                                .batch = batch,
                                .microbatches = kUpdates * batch,
                                .optimizer = GetParam()});
    }
  }
}

TEST_P(Pipedream, FlushEqualsItsOracleWhichIsOneDevice) {
  const auto with = [&](int p) {
    return Training{.versions = Versions::flush,
                    .replicas = straight(p),
                    .batch = 3,
                    .microbatches = kUpdates * 3,
                    .optimizer = GetParam()};
  };
  const Trained one_device = sequentially(with(1));
  for (const int p : {1, 2, 3, 4, 8}) {
    expect_equals_the_oracle(with(p));
    expect_equal(in_a_pipeline(with(p)), one_device, "one device");
  }
}

TEST_P(Pipedream, ReplicasEqualTheirOracle) {
  for (const std::vector<int>& replicas :
       std::vector<std::vector<int>>{{2}, {2, 1}, {1, 2}, {3, 1}, {2, 2, 1}, {2, 3, 1}}) {
    for (const int batch : {1, 2}) {
      expect_equals_the_oracle({.versions = Versions::stash,
                                .replicas = replicas,
                                .batch = batch,
                                .microbatches = 41,  // not divisible
                                .optimizer = GetParam()});
    }
    const int batch = std::accumulate(replicas.begin(), replicas.end(), 1, std::lcm<int, int>) * 4;
    for (const Versions versions : {Versions::vertical, Versions::two_buffers, Versions::flush}) {
      expect_equals_the_oracle({.versions = versions,
                                .replicas = replicas,
                                .batch = batch,
                                .microbatches = 4 * batch + 1,
                                .optimizer = GetParam()});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, Pipedream, testing::Values(OptimizerKind::sgd, OptimizerKind::adam),
                         [](const auto& each) { return each.param == OptimizerKind::sgd ? "sgd" : "adam"; });

TEST(PipedreamPolicies, AccumulateOverTheMicroBatchesOfABatch) {
  for (const Versions versions : {Versions::stash, Versions::vertical}) {
    expect_equals_the_oracle({.versions = versions, .replicas = straight(4), .batch = 3, .microbatches = 50});
  }
}

TEST(PipedreamPolicies, RecomputeWithTheWeightsOfTheForward) {
  for (const Versions versions : {Versions::stash, Versions::vertical, Versions::flush}) {
    expect_equals_the_oracle({.versions = versions, .replicas = straight(4), .recompute = Stage::Recompute::yes});
  }
}

TEST(PipedreamPolicies, TakeStagesWithoutParameters) {
  for (const Versions versions : {Versions::stash, Versions::vertical, Versions::flush}) {
    expect_equals_the_oracle({.versions = versions, .replicas = {1, 1, 1, 1}, .layers = {1, 1, 13, 1}});
  }
  expect_equals_the_oracle({.versions = Versions::stash, .replicas = {1, 2, 1}, .layers = {1, 1, 14}});
}

TEST(PipedreamPolicies, DifferFromEachOther) {
  const auto with = [](Versions versions) {
    return in_a_pipeline({.versions = versions, .replicas = straight(4), .batch = 4, .microbatches = 80});
  };
  const Trained stash = with(Versions::stash);
  for (const Versions versions : {Versions::vertical, Versions::two_buffers, Versions::flush}) {
    EXPECT_FALSE(same_bytes(with(versions).weights.at("fc0.weight"), stash.weights.at("fc0.weight")));
  }
}

TEST(PipedreamPolicies, NoneIsRefusedByTheVersionCheck) {
  EXPECT_TRUE(fails_with<Error>({"was modified after the forward"},
                                [] { in_a_pipeline({.versions = Versions::none, .replicas = straight(3)}); }));
}

TEST(PipedreamPolicies, NoneWithoutTheCheckIsNoGradient) {
  Training training{.versions = Versions::none, .replicas = straight(3), .checks_versions = false};
  const Trained wrong = in_a_pipeline(training);
  training.versions = Versions::stash;  // the same forwards at first
  const Trained right = sequentially(training);
  EXPECT_EQ(wrong.losses.at(0), right.losses.at(0));
  EXPECT_EQ(wrong.losses.at(1), right.losses.at(1));
  // The first gradient is right, as nothing has changed yet: that of the second micro-batch went through weights that
  // the first update had changed meanwhile.
  EXPECT_EQ(wrong.squares.at("0/fc0.weight"), right.squares.at("0/fc0.weight"));
  EXPECT_NE(wrong.squares.at("1/fc0.weight"), right.squares.at("1/fc0.weight"));
  EXPECT_FALSE(same_bytes(wrong.weights.at("fc0.weight"), right.weights.at("fc0.weight")));
}

}  // namespace
}  // namespace stagecoach
