// The advisor: its search against all candidates, and orders that are known.

#include "parallel/advise/advise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "core/base/throw_if.h"
#include "core/random.h"
#include "parallel/advise/late.h"
#include "parallel/advise/pareto.h"

namespace stagecoach {
namespace {

constexpr double kGiB = 1 << 30;

/// Random numbers, one after the other.
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : stream_(seed, "advise") {}
  double uniform(double least, double most) { return least + (most - least) * stream_.uniform(next_++); }
  int below(int bound) { return static_cast<int>(stream_.below(next_++, static_cast<std::uint32_t>(bound))); }

 private:
  Philox stream_;
  std::uint64_t next_ = 0;
};

/// Returns the costs of layers whose times and activations are in proportion to the samples.
ModelCosts in_proportion(std::vector<LayerProfile> layers, double samples) {
  for (LayerProfile& layer : layers) {
    for (double* seconds : {&layer.forward, &layer.backward_input, &layer.backward_weight}) {
      *seconds *= samples;
    }
    for (std::int64_t* bytes : {&layer.kept_bytes, &layer.freed_bytes, &layer.output_bytes, &layer.workspace_bytes}) {
      *bytes = static_cast<std::int64_t>(static_cast<double>(*bytes) * samples);
    }
  }
  return costs_of_profile(std::move(layers));
}

/// Returns a request for a model of equal blocks, whose ranks are connected by `link`; one sample takes 1 ms per block
/// and pass.
AdviceRequest equal_blocks(int blocks, int ranks, std::int64_t batch, const Network& network) {
  const LayerProfile block{.forward = 1e-3,
                           .backward_input = 1e-3,
                           .backward_weight = 1e-3,
                           .kept_bytes = 32 << 20,
                           .output_bytes = 1 << 20,
                           .parameter_bytes = 64 << 20};
  return {.ranks = ranks,
          .batch_size = batch,
          .network = network,
          .optimizer_bytes_per_weight_byte = 1,
          .costs = [layers = std::vector(static_cast<std::size_t>(blocks), block)](std::int64_t samples, int tensor) {
            throw_if<UsageError>(tensor > 1, "layers of a profile cannot be cut");
            return in_proportion(layers, static_cast<double>(samples));
          }};
}

AdviceRequest random_request(std::uint64_t seed) {
  Numbers random(seed);
  std::vector<LayerProfile> layers(static_cast<std::size_t>(2 + random.below(8)));
  for (LayerProfile& layer : layers) {
    layer = {.forward = random.uniform(1e-4, 2e-3),
             .backward_input = random.uniform(1e-4, 2e-3),
             .backward_weight = random.uniform(0, 2e-3),
             .kept_bytes = random.below(64 << 20),
             .output_bytes = random.below(4 << 20),
             .parameter_bytes = 4 * random.below(16 << 20)};
  }
  constexpr int kRanks[] = {1, 2, 3, 4, 6, 8};
  return {.ranks = kRanks[random.below(6)],
          .batch_size = 4 * (1 + random.below(4)),
          .network = Network(Link{random.uniform(0, 1e-4), random.uniform(1e9, 1e11)}),
          .memory_limit = random.below(3) == 0 ? 0 : random.uniform(0.05, 1.5) * kGiB,
          .optimizer_bytes_per_weight_byte = static_cast<double>(random.below(3)),
          .costs =
              [layers](std::int64_t samples, int tensor) {
                throw_if<UsageError>(tensor > 2, "a rank needs a head of its own");
                ModelCosts costs = in_proportion(layers, static_cast<double>(samples) / tensor);
                costs.exchanges.assign(layers.size(), {{.forward = 2, .backward = 2, .numel = 1 << 16}});
                return costs;
              },
          .late = random.below(3) == 0};
}

/// The answers as texts, or the error; and how many candidates were simulated.
struct Answers {
  std::vector<std::string> lines;
  int simulated = 0;
};

Answers answers(const AdviceRequest& request, Prune prune) {
  Answers answers;
  try {
    const Advice advice = advise(request, 10, prune);
    answers.simulated = advice.simulated;
    for (const Evaluated& plan : advice.best) {
      answers.lines.push_back(to_string(plan.candidate) + " " + std::to_string(1e3 * plan.seconds));
    }
  } catch (const UsageError& error) {
    answers.lines.push_back(error.what());
  }
  return answers;
}

/// Returns the candidate with its times; nothing if it is not possible.
std::optional<Evaluated> evaluated(Evaluator& evaluator, const Candidate& candidate) {
  try {
    Evaluated plan = evaluator.memory(candidate);
    evaluator.add_times(plan);
    return plan;
  } catch (const UsageError&) {
    return std::nullopt;
  }
}

TEST(Advise, FindsWhatBruteForceFinds) {
  int pruned = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const AdviceRequest request = random_request(seed);
    const Answers all = answers(request, Prune::no);
    const Answers found = answers(request, Prune::yes);
    EXPECT_EQ(found.lines, all.lines) << "seed " << seed;
    pruned += found.simulated < all.simulated ? 1 : 0;
  }
  EXPECT_GT(pruned, 50);
}

// What the search does not simulate is no faster than its bound, and the bounds of most schedules are close.
TEST(Advise, KnowsHowFastAStepCanBe) {
  int close = 0;
  int all = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const AdviceRequest request = random_request(seed);
    Evaluator evaluator(request);
    for (const Candidate& candidate : candidates_of(request)) {
      if (const std::optional<Evaluated> plan = evaluated(evaluator, candidate)) {
        const double least = evaluator.least_seconds(candidate);
        EXPECT_LE(least, plan->seconds) << "seed " << seed << ": " << to_string(candidate);
        close += least > 0.9 * plan->seconds ? 1 : 0;
        ++all;
      }
    }
  }
  EXPECT_GT(close, all / 2);
}

// Every candidate with every size of buckets that is tried.
TEST(Advise, FindsTheSizeOfBucketsThatBruteForceFinds) {
  int larger = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    AdviceRequest request = random_request(seed);
    request.network = Network(Link{1e-4, 1e10});
    Evaluator searching(request);
    AdviceRequest fixed = request;
    Evaluator trying(fixed);
    for (const Candidate& candidate : candidates_of(request)) {
      const std::optional<Evaluated> found = evaluated(searching, candidate);
      if (!found || candidate.mesh.data == 1) {
        continue;
      }
      SCOPED_TRACE(to_string(candidate));
      double best = found->seconds;
      for (const std::size_t size : {25, 50, 100, 200, 400, 800}) {
        fixed.bucket_size = size << 20;
        Candidate tried = candidate;
        tried.bucket_size = size << 20;
        best = std::min(best, evaluated(trying, tried)->seconds);
      }
      EXPECT_GE((1 + 1e-9) * best, 0.999 * found->seconds);
      larger += found->candidate.bucket_size > candidate.bucket_size ? 1 : 0;
    }
  }
  EXPECT_GT(larger, 100);
}

// The plans that no other one beats, by time and memory.
TEST(Pareto, FindsWhatBruteForceFinds) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const AdviceRequest request = random_request(seed);
    const std::vector<Evaluated> found = pareto(request);
    const std::vector<Evaluated> all = pareto(request, {}, Prune::no);
    ASSERT_EQ(found.size(), all.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(to_string(found[i].candidate), to_string(all[i].candidate));
      if (i > 0) {
        EXPECT_GT(found[i].seconds, found[i - 1].seconds);
        EXPECT_LT(found[i].worst().total(), found[i - 1].worst().total());
      }
    }
    Evaluator evaluator(request);
    for (const Candidate& candidate : candidates_of(request)) {
      const std::optional<Evaluated> other = evaluated(evaluator, candidate);
      if (!other || (request.memory_limit > 0 && other->worst().total() > request.memory_limit)) {
        continue;
      }
      EXPECT_TRUE(std::any_of(found.begin(), found.end(), [&](const Evaluated& plan) {
        return plan.seconds <= (1 + 1e-9) * other->seconds &&
               plan.worst().total() <= (1 + 1e-9) * other->worst().total();
      })) << to_string(candidate);
    }
  }
}

TEST(Pareto, BeginsWithTheBestPlan) {
  const AdviceRequest request = equal_blocks(8, 4, 16, Link{1e-5, 1e10});
  const std::vector<Evaluated> best = advise(request).best;
  const std::vector<Evaluated> plans = pareto(request, best);
  EXPECT_LE(plans.front().seconds, best.front().seconds);
  EXPECT_GT(plans.size(), 2U);
  EXPECT_LT(plans.back().worst().total(), best.front().worst().total());
}

// The splits of candidates come from sums of costs: simulated steps of zbv find better ones, within the limit of
// memory.
TEST(Advise, MovesLayersWhereThatMakesTheStepFaster) {
  AdviceRequest request = equal_blocks(26, 8, 64, Link{1e-5, 1e10});
  const Candidate zbv{.schedule = "zbv", .mesh = {.pipeline = 8}, .microbatches = 32, .chunks = 2};
  const auto moved = [&] {
    Evaluator evaluator(request);
    Evaluated plan = evaluator.memory(zbv);
    evaluator.add_times(plan);
    const double before = plan.seconds;
    evaluator.move_layers(plan);
    EXPECT_LE(plan.seconds, before);
    return std::pair{before, plan};
  };
  const auto [before, plan] = moved();
  EXPECT_LT(plan.seconds, 0.99 * before);
  EXPECT_EQ(std::accumulate(plan.split.begin(), plan.split.end(), 0), 26);
  request.memory_limit = plan.worst().total() - 1;
  EXPECT_LE(moved().second.worst().total(), request.memory_limit);
}

TEST(Advise, RejectsEveryOtherCandidateWithAReason) {
  AdviceRequest request = equal_blocks(8, 4, 16, Link{1e-5, 1e10});
  request.memory_limit = 2 * kGiB;
  const Advice advice = advise(request);
  EXPECT_EQ(advice.best.size() + advice.rejected.size(), static_cast<std::size_t>(advice.candidates));
  EXPECT_TRUE(std::all_of(advice.rejected.begin(), advice.rejected.end(),
                          [](const Rejected& rejected) { return !rejected.reason.empty(); }));
  EXPECT_TRUE(std::any_of(advice.rejected.begin(), advice.rejected.end(), [](const Rejected& rejected) {
    return rejected.reason.find("the limit is 2.0 GiB") != std::string::npos;
  }));
}

const Evaluated& first(const Advice& advice, const std::string& schedule) {
  const auto found = std::find_if(advice.best.begin(), advice.best.end(), [&](const Evaluated& plan) {
    return plan.candidate.schedule == schedule && plan.candidate.mesh.pipeline > 1;
  });
  return found == advice.best.end() ? advice.best.back() : *found;
}

// Narayanan et al., "Efficient large-scale language model training on GPU clusters using Megatron-LM", 2021, section
// 5.3.2 and figure 12: the interleaved schedule gains over 1F1B, and the gain closes as the batch grows.
TEST(Advise, PrefersInterleavedStagesTheMoreTheFewerTheMicrobatchesAre) {
  double before = 0;
  for (const int microbatches : {8, 16, 32}) {
    AdviceRequest request = equal_blocks(16, 4, microbatches, Link{1e-6, 4e11});
    request.pipeline = 4;
    request.microbatches = microbatches;
    request.recompute = false;
    request.schedules = {"1f1b", "interleaved"};
    const Advice advice = advise(request);
    ASSERT_EQ(advice.best.front().candidate.schedule, "interleaved");
    const double gain = first(advice, "1f1b").seconds / advice.best.front().seconds;
    EXPECT_GT(gain, 1);
    if (before > 0) {
      EXPECT_LT(gain, before);
    }
    before = gain;
  }
}

// Qi et al., "Zero bubble pipeline parallelism", 2024, section 5.2 and table 4: ZB-2p (here zb-h2) is faster than
// ZB-1p (zb-h1), which is faster than 1F1B; it holds more, so that with 1F1B's memory it is no choice.
TEST(Advise, PrefersZeroBubbleSchedulesWhereMemoryAllows) {
  AdviceRequest request = equal_blocks(16, 4, 16, Link{1e-6, 4e11});
  request.pipeline = 4;
  request.microbatches = 16;
  request.recompute = false;
  request.schedules = {"1f1b", "zb-h1", "zb-h2"};
  const Advice enough = advise(request);
  ASSERT_EQ(enough.best.size(), 3U);
  EXPECT_EQ(enough.best[0].candidate.schedule, "zb-h2");
  EXPECT_EQ(enough.best[1].candidate.schedule, "zb-h1");
  request.memory_limit = enough.best[0].worst().total() - 1;
  EXPECT_NE(advise(request).best[0].candidate.schedule, "zb-h2");
}

// Li et al., "PyTorch distributed", 2020, section 5: with a fast link, all-reduces overlap with the backward, and
// replicas scale almost linearly. Narayanan et al., "PipeDream", 2019, section 5.2: over a slow one a pipeline, which
// sends activations instead of gradients, is faster.
TEST(Advise, PrefersReplicasWhereTheLinkIsFast) {
  const Candidate fast = advise(equal_blocks(16, 4, 64, Link{1e-6, 4e11})).best.front().candidate;
  EXPECT_EQ(fast.mesh.data, 4);
  const Candidate slow = advise(equal_blocks(16, 4, 64, Link{1e-5, 5e8})).best.front().candidate;
  EXPECT_GT(slow.mesh.pipeline, 1);
}

// Narayanan et al., 2021, takeaway 1: tensor parallelism up to the ranks of a node, pipelines across nodes.
TEST(Advise, PutsTensorParallelRanksInANodeAndPipelinesBetweenNodes) {
  AdviceRequest request = equal_blocks(16, 8, 8, Network(Link{1e-6, 4e11}, Link{2e-5, 1e9}, 4));
  const auto whole = request.costs(1, 1).layers;
  request.costs = [whole](std::int64_t samples, int tensor) {
    ModelCosts costs = in_proportion(whole, static_cast<double>(samples) / tensor);
    for (LayerProfile& layer : costs.layers) {
      layer.parameter_bytes /= tensor;
      layer.output_bytes *= tensor;  // not cut
    }
    costs.exchanges.assign(whole.size(), {{.forward = 4, .backward = 4, .numel = samples << 18}});
    return costs;
  };
  request.data = 1;
  request.microbatches = 8;
  const MeshSizes mesh = advise(request).best.front().candidate.mesh;
  EXPECT_LE(mesh.tensor, 4);
  EXPECT_GE(mesh.pipeline, 2);
}

// Narayanan et al., "PipeDream", 2019, section 3: without a flush no rank is idle, for more versions of the weights;
// "Memory-efficient pipeline-parallel DNN training", 2021, section 3.1: two versions are enough, with a delay of 1.
TEST(Advise, KeepsRanksBusyWhereGradientsMayBeLate) {
  AdviceRequest request = equal_blocks(16, 4, 4, Link{1e-6, 4e11});
  request.pipeline = 4;
  request.microbatches = 4;
  request.recompute = false;
  request.schedules = {"1f1b"};
  const double drained = advise(request).best.front().seconds;
  request.late = true;
  const Advice advice = advise(request);
  ASSERT_EQ(advice.best.size(), 3U);
  for (const std::string& schedule : late_schedules()) {
    const Evaluated& plan = first(advice, schedule);
    EXPECT_LT(plan.seconds, drained * 4 / 7 * 1.02) << schedule;  // the bubble is 3 of 7
    EXPECT_LT(plan.idle, 0.02) << schedule;
    EXPECT_EQ(plan.staleness, 1) << schedule;
  }
  request.microbatches = 1;
  const Advice alone = advise(request);
  EXPECT_EQ(alone.best.front().candidate.schedule, "pipedream-stash");
  EXPECT_EQ(alone.best.front().staleness, 3);
  EXPECT_EQ(alone.best.front().memory.front().weights, 4 * alone.best.front().memory.back().weights);
}

TEST(Advise, LeavesAModelOnOneDeviceWhereNothingHelps) {
  const Candidate best = advise(equal_blocks(4, 4, 8, Link{1, 1e6})).best.front().candidate;
  EXPECT_EQ(best.mesh.ranks(), 1);
}

std::string refusal(const AdviceRequest& request) {
  try {
    static_cast<void>(advise(request));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Advise, SaysWhatIsNearestWhereNothingFits) {
  AdviceRequest request = equal_blocks(8, 4, 16, Link{1e-5, 1e10});
  request.memory_limit = 0.01 * kGiB;
  const std::string text = refusal(request);
  EXPECT_NE(text.find("no plan fits into 10.2 MiB per rank: the nearest needs "), std::string::npos) << text;
}

TEST(Advise, RefusesSizesThatNoMeshHas) {
  AdviceRequest request = equal_blocks(8, 4, 16, Link{});
  request.pipeline = 3;
  EXPECT_NE(refusal(request).find("no mesh of 4 ranks has the fixed sizes"), std::string::npos);
  request.pipeline = 2;
  request.microbatches = 5;
  EXPECT_NE(refusal(request).find("no candidate has 5 micro-batches of equal size"), std::string::npos);
}

}  // namespace
}  // namespace stagecoach
