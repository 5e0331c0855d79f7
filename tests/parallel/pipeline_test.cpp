// Every synchronous schedule trains what one device trains, bit for bit: parameters, gradient norms, losses.

#include "parallel/pipeline/pipeline.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "core/ops.h"
#include "core/random.h"
#include "nn/models.h"
#include "nn/optimizer.h"
#include "parallel/launch/launch.h"
#include "parallel/pipeline/split.h"
#include "parallel/schedule/check.h"
#include "parallel/schedule/gradient_order.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/schedule_kinds.h"
#include "parallel/schedule/text.h"
#include "tests/parallel/legal_schedule.h"
#include "tests/parallel/pipeline_training.h"
#include "tests/support/errors.h"
#include "tests/support/sanitized.h"

namespace stagecoach {
namespace {

using test::Batch;
using test::entering_stages;
using test::expect_equal;
using test::fails_with;
using test::in_pipeline;
using test::kSeed;
using test::Model;
using test::on_one_device;
using test::Task;
using test::train_rank;
using test::Trained;
using test::uneven_model;
using test::unless_sanitized;
using Sizes = std::vector<int>;

const Task kUneven{uneven_model, {6}, 4, unless_sanitized(10, 3)};
const Task kUnevenFewSteps{uneven_model, {6}, 4, 3};
const Task kImages{test::image_model, {3, 6, 6}, 4, 3};
const Task kConvnet{[] { return make_model("convnet"); }, {3, 32, 32}, 10, 2};
/// 8 layers.
const Task kVit{
    [] { return make_model("vit", {.image_size = 16, .sizes = {.depth = 4, .width = 16}}); }, {3, 16, 16}, 10, 2};

struct Case {
  const char* schedule;
  int chunks;
};
void PrintTo(const Case& which, std::ostream* out) { *out << which.schedule << ", " << which.chunks << " chunks"; }
std::string name_of_case(const ::testing::TestParamInfo<Case>& info) {
  std::string name = fmt::format("{}_{}", info.param.schedule, info.param.chunks);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class EverySchedule : public ::testing::TestWithParam<Case> {
 protected:
  /// Runs every step of `task` on `p` ranks, where that is legal, and compares it with `wanted`.
  static void expect_one_device(const Task& task, const Trained& wanted, int p, int m,
                                Stage::Recompute recompute = Stage::Recompute::no) {
    if (const auto schedule = test::schedule_if_legal(GetParam().schedule, p, m, GetParam().chunks)) {
      SCOPED_TRACE(fmt::format("{} ranks, {} micro-batches", p, m));
      expect_equal(wanted, in_pipeline(task, *schedule, recompute));
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Pipeline, EverySchedule,
                         ::testing::Values(Case{"naive", 1}, Case{"gpipe", 1}, Case{"1f1b", 1}, Case{"zb-h1", 1},
                                           Case{"zb-h2", 1}, Case{"interleaved", 2}, Case{"interleaved", 4},
                                           Case{"interleaved-sync", 2}, Case{"foldx_aiao", 1}, Case{"foldx_aiao", 2},
                                           Case{"foldx_aiao", 4}, Case{"interleaved-zb", 2}, Case{"interleaved-zb", 3},
                                           Case{"zbv", 2}, Case{"dualpipev", 2}),
                         name_of_case);

TEST_P(EverySchedule, EqualsOneDeviceBitForBit) {
  for (const int m : unless_sanitized<Sizes>({1, 2, 3, 4, 6, 8}, {1, 6})) {
    const Trained wanted = on_one_device(kUneven, m);
    for (const int p : unless_sanitized<Sizes>({1, 2, 3, 4, 8}, {1, 3})) {
      expect_one_device(kUneven, wanted, p, m);
    }
  }
}

TEST_P(EverySchedule, EqualsOneDeviceWithManyMicroBatches) {
  const Trained wanted = on_one_device(kUnevenFewSteps, 24);
  for (const int p : unless_sanitized<Sizes>({2, 3, 4, 8}, {4})) {
    expect_one_device(kUnevenFewSteps, wanted, p, 24);
  }
}

TEST_P(EverySchedule, EqualsOneDeviceWithRecomputation) {
  for (const int m : unless_sanitized<Sizes>({4, 24}, {4})) {
    const Trained wanted = on_one_device(kUnevenFewSteps, m);
    for (const int p : unless_sanitized<Sizes>({2, 3, 4}, {2, 4})) {
      expect_one_device(kUnevenFewSteps, wanted, p, m, Stage::Recompute::yes);
    }
  }
}

TEST_P(EverySchedule, EqualsOneDeviceHoweverItCommunicates) {
  const Trained wanted = on_one_device(kUneven, 6);
  const Schedule computations = make_schedule(GetParam().schedule, 3, 6, GetParam().chunks);
  for (const int receives : {0, 1, kDefaultReceives, 1000}) {
    for (const bool sends_wait : {false, true}) {
      const Schedule schedule = lower(computations, {.receives = receives, .sends_wait = sends_wait});
      if (check(schedule).empty()) {
        SCOPED_TRACE(fmt::format("{} receives posted, sends {}wait", receives, sends_wait ? "" : "do not "));
        expect_equal(wanted, in_pipeline(kUneven, schedule));
      }
    }
  }
}

TEST_P(EverySchedule, EqualsOneDeviceOnVit) {
  const Trained wanted = on_one_device(kVit, 4);
  expect_one_device(kVit, wanted, 2, 4);
  if (GetParam().chunks <= 2) {
    expect_one_device(kVit, wanted, 4, 4, Stage::Recompute::yes);
  }
}

// A mask depends on the sample, the step and the layer's name: not on the micro-batch, nor on how often it is drawn.
TEST(Pipeline, EqualsOneDeviceWithDropout) {
  const Task task{test::model_with_dropout, {6}, 4, 2};
  for (const char* name : {"gpipe", "1f1b", "interleaved", "zb-h1", "zbv"}) {
    for (const auto recompute : {Stage::Recompute::no, Stage::Recompute::yes}) {
      SCOPED_TRACE(name);
      const int chunks = find_schedule(name)->min_chunks;
      expect_equal(on_one_device(task, 4), in_pipeline(task, make_schedule(name, 2, 4, chunks), recompute));
    }
  }
  EXPECT_NE(on_one_device({test::uneven_model, {6}, 4, 2}, 4).losses, on_one_device(task, 4).losses);
}

// Batch norm normalises each micro-batch by itself, here as there, and its statistics move once a micro-batch.
TEST(Pipeline, EqualsOneDeviceOnImagesWithBatchNorm) {
  const Trained wanted = on_one_device(kImages, 4);
  for (const char* name : {"naive", "gpipe", "1f1b", "zb-h1", "zb-h2", "zbv", "dualpipev"}) {
    for (const int p : {2, find_schedule(name)->is_v_shaped ? 3 : 4}) {  // the model has 7 layers
      for (const auto recompute : {Stage::Recompute::no, Stage::Recompute::yes}) {
        SCOPED_TRACE(fmt::format("{}, {} ranks", name, p));
        expect_equal(wanted, in_pipeline(kImages, make_schedule(name, p, 4), recompute));
      }
    }
  }
}

TEST(Pipeline, EqualsOneDeviceOnConvnet) {
  const Trained wanted = on_one_device(kConvnet, 3);
  expect_equal(wanted, in_pipeline(kConvnet, make_schedule("1f1b", 3, 3)));
  expect_equal(wanted, in_pipeline(kConvnet, make_schedule("foldx_aiao", 2, 3, 3)));
}

// Each micro-batch normalises by itself, and the statistics move once a micro-batch, in their order: as on one device.
TEST(Pipeline, EqualsOneDeviceOnResnet18) {
  const Task task{[] { return make_model("resnet18"); }, {3, 16, 16}, 10, 1};
  expect_equal(on_one_device(task, 2), in_pipeline(task, make_schedule("interleaved", 2, 2, 2), Stage::Recompute::yes));
}

// A step with fewer micro-batches, as an epoch's last batch makes it, runs the same order without those.
TEST(Pipeline, RunsFewerMicroBatchesInTheSameOrder) {
  const Trained wanted = on_one_device(kUneven, 3);
  for (const std::string& name : schedule_names()) {
    SCOPED_TRACE(name);
    const int chunks = find_schedule(name)->takes_chunks() ? 2 : 0;
    expect_equal(wanted, in_pipeline(kUneven, with_fewer_microbatches(make_schedule(name, 4, 8, chunks), 3)));
  }
}

// A student's own table, as torch.distributed.pipelining writes it.
TEST(Pipeline, RunsATableFromText) {
  const Schedule schedule =
      lower(schedule_from_text("0F0,0F1,,,0B0,,0B1\n"
                               ",1F0,1F1,1B0,,1B1,\n",
                               "table"));
  require_legal(schedule, "table");
  expect_equal(on_one_device(kUneven, 2), in_pipeline(kUneven, schedule));
}

/// What else a table may hold: each stage's backwards, or its weight gradients, in an order that is not ascending.
const char* const kOutOfOrder[] = {
    // PyTorch's looped breadth-first schedule: 2 ranks, 2 chunks, 4 micro-batches.
    "0F0,0F1,0F2,0F3,2F0,2F1,2F2,2F3,,,2B3,2B2,2B1,2B0,0B3,0B2,0B1,0B0\n"
    ",1F0,1F1,1F2,1F3,3F0,3F1,3F2,3F3,3B3,3B2,3B1,3B0,1B3,1B2,1B1,1B0\n",
    // Some of the others come between.
    "0F0,0F1,0F2,0F3,0B2,0B0,0B3,0B1\n"
    "1F0,1F1,1F2,1F3,1B2,1B0,1B3,1B1\n",
    // Backwards in two parts, of which only the second is out of order; and stages that mix them.
    "0F0,0F1,0F2,0F3,0I0,0I1,0I2,0I3,0W3,0W0,0W2,0W1\n"
    "1F0,1F1,1F2,1F3,1I0,1B1,1B2,1I3,1W3,1W0\n"};

TEST(Pipeline, AddsGradientsInTheOrderOfTheMicroBatches) {
  for (const char* table : kOutOfOrder) {
    SCOPED_TRACE(table);
    const Schedule schedule = lower(schedule_from_text(table, "table"));
    require_legal(schedule, "table");
    EXPECT_FALSE(notes_on_order(schedule).empty());
    for (const auto recompute : {Stage::Recompute::no, Stage::Recompute::yes}) {
      expect_equal(on_one_device(kUneven, 4), in_pipeline(kUneven, schedule, recompute));
      expect_equal(on_one_device(kImages, 4), in_pipeline(kImages, schedule, recompute));
    }
  }
}

// The sum over micro-batches is that of the whole batch, except for the order of the additions.
TEST(Pipeline, IsCloseToTheWholeBatchAtOnce) {
  const Model model = uneven_model();
  model->materialize(kSeed);
  const Batch batch(kUneven, 4, 0);
  backward(cross_entropy(model->forward(batch.images), batch.labels));
  Task once = kUneven;
  once.steps = 1;
  const Trained got = in_pipeline(once, make_schedule("1f1b", 4, 4));
  for (const auto& [name, parameter] : model->named_parameters()) {
    const double wanted = sum_of_squares(parameter.grad());
    EXPECT_NEAR(got.squares.at("0/" + name), wanted, 2e-5 * wanted + 1e-14) << name;
  }
}

// A rank that fails in the midst of any action stops all others, who say where they were.
TEST(Pipeline, AFailureInAnyActionStopsAllRanks) {
  const Schedule schedule = lower(make_schedule("1f1b", 3, 4));
  const auto entering = entering_stages(kUneven, 3);
  for (int stage = 0; stage < 3; ++stage) {
    for (int at = 0; at < 8; ++at) {
      const auto run = [&] {
        launch({.ranks = 3, .timeout = 30}, [&](Rank& rank) {
          Schedule mine = schedule;
          if (rank.index == stage) {  // this rank's list breaks off: its micro-batch never ran forward
            mine.ranks[static_cast<std::size_t>(stage)][static_cast<std::size_t>(at)] = {Operation::backward_weight,
                                                                                         stage, 0};
          }
          Trained result;
          std::mutex mutex;
          train_rank(rank, kUneven, mine, entering, Stage::Recompute::no, result, mutex);
        });
      };
      EXPECT_TRUE(fails_with<Error>({fmt::format("rank {}", stage).c_str(), "micro-batch 0"}, run))
          << "stage " << stage << ", action " << at;
    }
  }
}

TEST(Split, DealsLayersEvenly) {
  EXPECT_EQ(split_by_layers(7, 3), (Split{3, 2, 2}));
  EXPECT_EQ(split_by_layers(4, 4), (Split{1, 1, 1, 1}));
  EXPECT_TRUE(fails_with<UsageError>({"4 layers", "5 stages", "at most 4"}, [] { split_by_layers(4, 5); }));
  EXPECT_TRUE(fails_with<UsageError>({"0 stages"}, [] { split_by_layers(4, 0); }));
}

/// The least largest sum, by trying every split.
double best_by_force(const std::vector<double>& costs, std::size_t begin, int stages) {
  double best = 1e300;
  double sum = 0;
  for (std::size_t end = begin + 1; end <= costs.size(); ++end) {
    sum += costs[end - 1];
    if (stages == 1) {
      best = end == costs.size() ? sum : best;
    } else if (end < costs.size()) {
      best = std::min(best, std::max(sum, best_by_force(costs, end, stages - 1)));
    }
  }
  return best;
}

TEST(Split, ByCostsMakesTheSlowestStageAsFastAsCanBe) {
  const Philox random(3, "costs");
  for (std::uint64_t round = 0; round < 200; ++round) {
    std::vector<double> costs(3 + random.below(round, 6));
    for (std::size_t i = 0; i < costs.size(); ++i) {
      costs[i] = 1 + random.below(1000 + 10 * round + i, 9);
    }
    for (int stages = 1; stages <= static_cast<int>(costs.size()); ++stages) {
      double largest = 0;
      std::size_t at = 0;
      for (const int layers : split_by_costs(costs, round_robin_placement(stages, stages))) {
        double sum = 0;
        for (int i = 0; i < layers; ++i) {
          sum += costs[at++];
        }
        largest = std::max(largest, sum);
      }
      ASSERT_EQ(at, costs.size());
      ASSERT_EQ(largest, best_by_force(costs, 0, stages));
    }
  }
}

TEST(Split, IsReadFromText) {
  EXPECT_EQ(split_from_text("5,4,3"), (Split{5, 4, 3}));
  EXPECT_EQ(split_from_text("12"), (Split{12}));
  for (const char* text : {"", ",", "1,", ",1", "1,,2", "a", "1,b", "0,3", "-1,4", "1 2", "1.5"}) {
    EXPECT_TRUE(fails_with<UsageError>({"such as 5,4,3"}, [&] { split_from_text(text); })) << text;
  }
}

TEST(Split, MustDealOutEveryLayer) {
  const Model model = make_model("toy");
  EXPECT_EQ(stages_of(*model, {2, 1}).size(), 2U);
  EXPECT_TRUE(fails_with<UsageError>({"split 1,1", "3 layers in all, got 2"}, [&] { stages_of(*model, {1, 1}); }));
  EXPECT_TRUE(fails_with<UsageError>({"at least one layer per stage"}, [&] { stages_of(*model, {3, 0}); }));
}

}  // namespace
}  // namespace stagecoach
