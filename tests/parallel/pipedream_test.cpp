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

#include "parallel/data_parallel/average_gradients.h"
#include "parallel/launch/launch.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/pipeline/split.h"
#include "parallel/pipeline/weight_versions.h"
#include "parallel/schedule/ledger.h"
#include "parallel/schedule/lower.h"
#include "tests/parallel/pipedream_oracle.h"
#include "tests/support/errors.h"
#include "tests/support/sanitized.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::PipedreamResult;
using test::PipedreamTraining;
using test::same_bytes;
using test::train_sequentially;
/// What one rank does in the pipeline.
void train_rank(const PipedreamTraining& training, const Schedule& schedule, const Ledger& ledger, Rank& rank,
                PipedreamResult& result, std::mutex& mutex) {
  const auto unchecked = training.checks_versions ? nullptr : std::make_unique<UncheckedVersions>();
  const int number = schedule.stage_of(rank.index);
  const auto part = stages_of(*test::make_net(), training.split())[static_cast<std::size_t>(number)];
  part->materialize(3, rank.device);
  const NamedTensors parameters = part->named_parameters();
  const auto optimizer = test::make_optimizer_for(training, parameters);
  const auto replicas = rank.comm.split(number, rank.index);
  std::map<int, Stage> stages;
  stages.emplace(number, Stage(part, training.recompute));
  Pipeline pipeline(std::move(stages), std::vector<Shape>(training.replicas.size(), Shape{1, test::kWidth}), schedule,
                    rank.comm);
  WeightVersions weights(parameters, schedule, ledger, rank.index);
  const auto& actions = schedule.ranks[static_cast<std::size_t>(rank.index)];
  const StepData data{[&](int i) { return test::images(i).to(rank.device); },
                      [&](int i) { return test::labels(i).to(rank.device); },
                      std::vector<std::int64_t>(static_cast<std::size_t>(training.microbatches), test::kSamples)};
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
  hooks.update = [&](const Action& update) {
    if (replicas->rank() == 0) {
      const std::lock_guard lock(mutex);
      result.note_gradients(update.microbatch, parameters);
    }
    optimizer->step();
    optimizer->zero_grad();
  };
  pipeline.begin(schedule, data, hooks);
  for (std::size_t i = 0; i < actions.size(); ++i) {
    weights.choose(i);
    pipeline.perform(actions[i]);
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

PipedreamResult in_a_pipeline(const PipedreamTraining& training) {
  const Schedule schedule =
      lower(pipedream_schedule(training.replicas, training.microbatches, training.batch, training.versions));
  const Ledger ledger = make_ledger(schedule, training.versions);
  PipedreamResult result;
  std::mutex mutex;
  launch({.ranks = schedule.rank_count()},
         [&](Rank& rank) { train_rank(training, schedule, ledger, rank, result, mutex); });
  return result;
}

std::string context(const PipedreamTraining& training) {
  return fmt::format("{} on {}, {} micro-batches, {} a batch, {}", to_string(training.versions),
                     fmt::join(training.replicas, ","), training.microbatches, training.batch,
                     training.optimizer == OptimizerKind::sgd ? "sgd" : "adam");
}

void expect_equal(const PipedreamResult& a, const PipedreamResult& b, const std::string& what) {
  ASSERT_EQ(a.weights.size(), 16U);
  ASSERT_EQ(b.weights.size(), 16U);
  EXPECT_GT(a.squares.at("0/fc0.weight"), 0) << "gradients reach the first layer";
  for (const auto& [name, weight] : a.weights) {
    EXPECT_TRUE(same_bytes(weight, b.weights.at(name))) << what << ": " << name;
  }
  EXPECT_EQ(a.squares, b.squares) << what << ": gradient norms";
  EXPECT_EQ(a.losses, b.losses) << what;
}

void expect_equals_the_oracle(const PipedreamTraining& training) {
  expect_equal(in_a_pipeline(training), train_sequentially(training), context(training));
}

std::vector<int> replicas_of_one(int p) { return std::vector<int>(static_cast<std::size_t>(p), 1); }

std::vector<int> ranks() { return test::unless_sanitized<std::vector<int>>({1, 2, 3, 4, 8}, {1, 4}); }

class Pipedream : public testing::TestWithParam<OptimizerKind> {};

TEST_P(Pipedream, StashingEqualsItsOracle) {
  for (const int p : ranks()) {
    expect_equals_the_oracle({.versions = Versions::stash, .replicas = replicas_of_one(p), .optimizer = GetParam()});
  }
}

TEST_P(Pipedream, VerticalSyncEqualsItsOracle) {
  for (const int p : ranks()) {
    expect_equals_the_oracle({.versions = Versions::vertical, .replicas = replicas_of_one(p), .optimizer = GetParam()});
  }
}

TEST_P(Pipedream, TwoBuffersEqualTheirOracle) {
  for (const int p : ranks()) {
    for (const int batch : {p, p + 3}) {
      expect_equals_the_oracle({.versions = Versions::two_buffers,
                                .replicas = replicas_of_one(p),
                                .batch = batch,
                                .microbatches = test::kUpdates * batch,
                                .optimizer = GetParam()});
    }
  }
}

TEST_P(Pipedream, FlushEqualsItsOracleWhichIsOneDevice) {
  const auto with = [&](int p) {
    return PipedreamTraining{.versions = Versions::flush,
                             .replicas = replicas_of_one(p),
                             .batch = 3,
                             .microbatches = test::kUpdates * 3,
                             .optimizer = GetParam()};
  };
  const PipedreamResult one_device = train_sequentially(with(1));
  for (const int p : ranks()) {
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
    expect_equals_the_oracle({.versions = versions, .replicas = replicas_of_one(4), .batch = 3, .microbatches = 50});
  }
}

TEST(PipedreamPolicies, RecomputeWithTheWeightsOfTheForward) {
  for (const Versions versions : {Versions::stash, Versions::vertical, Versions::flush}) {
    expect_equals_the_oracle(
        {.versions = versions, .replicas = replicas_of_one(4), .recompute = Stage::Recompute::yes});
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
    return in_a_pipeline({.versions = versions, .replicas = replicas_of_one(4), .batch = 4, .microbatches = 80});
  };
  const PipedreamResult stash = with(Versions::stash);
  for (const Versions versions : {Versions::vertical, Versions::two_buffers, Versions::flush}) {
    EXPECT_FALSE(same_bytes(with(versions).weights.at("fc0.weight"), stash.weights.at("fc0.weight")));
  }
}

TEST(PipedreamPolicies, NoneIsRefusedByTheVersionCheck) {
  EXPECT_TRUE(fails_with<Error>({"was modified after the forward"},
                                [] { in_a_pipeline({.versions = Versions::none, .replicas = replicas_of_one(3)}); }));
}

TEST(PipedreamPolicies, NoneWithoutTheCheckIsNoGradient) {
  PipedreamTraining training{.versions = Versions::none, .replicas = replicas_of_one(3), .checks_versions = false};
  const PipedreamResult wrong = in_a_pipeline(training);
  training.versions = Versions::stash;  // the same forwards at first
  const PipedreamResult right = train_sequentially(training);
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
