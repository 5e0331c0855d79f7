// What ranks hold at once, counted by their allocators, against what a schedule and a profile predict.

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/allocator.h"
#include "nn/layers.h"
#include "nn/models.h"
#include "nn/optimizer.h"
#include "parallel/launch/launch.h"
#include "parallel/pipeline/layer_profile.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/pipeline/split.h"
#include "parallel/pipeline/weight_versions.h"
#include "parallel/schedule/ledger.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/pipedream.h"
#include "parallel/schedule/schedule_kinds.h"
#include "parallel/schedule/simulate.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

constexpr std::int64_t kMicrobatchImages = 16;  // a micro-batch
constexpr int kMemoryMicrobatches = 8;
const Split kSplit{3, 3, 3, 3};
const Shape kImage{1, 3, 32, 32};
constexpr double kPooled = kMicrobatchImages * 6 * 14 * 14 * 4;  // bytes that leave the first stage

std::shared_ptr<Sequential> convnet(Device device = {}) {
  auto model = make_model("convnet");
  model->materialize(1, device);
  return model;
}

/// Peak bytes of each rank over those that it holds between steps.
std::vector<double> measured(const Schedule& schedule, Stage::Recompute recompute) {
  std::vector<double> peaks(schedule.ranks.size());
  const auto entering = shapes_entering(*convnet(), kSplit, kImage);
  launch({.ranks = schedule.rank_count()}, [&](Rank& rank) {
    const auto part = stages_of(*make_model("convnet"), kSplit)[static_cast<std::size_t>(rank.index)];
    part->materialize(1, rank.device);
    std::map<int, Stage> stages;
    stages.emplace(rank.index, Stage(part, recompute));
    Pipeline pipeline(std::move(stages), entering, schedule, rank.comm);
    const StepData data{
        [&](int) { return test::random_tensor(kImage.with(0, kMicrobatchImages), "x", DType::float32, rank.device); },
        [&](int) { return Tensor::zeros({kMicrobatchImages}, DType::int32, rank.device); },
        std::vector<std::int64_t>(kMemoryMicrobatches, kMicrobatchImages)};
    pipeline.run(schedule, data);  // from here on there are gradients
    rank.comm.barrier();
    Allocator& memory = allocator(rank.device);
    memory.reset_peak();
    const auto before = static_cast<double>(memory.stats().current_bytes);
    pipeline.run(schedule, data);
    peaks[static_cast<std::size_t>(rank.index)] = static_cast<double>(memory.stats().peak_bytes) - before;
  });
  return peaks;
}

/// Bytes of a micro-batch in flight, a stage.
std::vector<double> predicted_bytes(Stage::Recompute recompute) {
  const auto profile = profile_layers(*make_model("convnet"), kImage.with(0, kMicrobatchImages), {}, 1);
  return bytes_of_stages(profile, kSplit, kMicrobatchImages * kImage.numel() * 4, recompute);
}

/// Checks that `saved` bytes are what was predicted: within 5%, except for `handed_over`, what the next rank got and
/// may have freed by then.
void expect_saved(double saved, double predicted, double handed_over) {
  EXPECT_GT(saved, 0.95 * predicted);
  EXPECT_LT(saved, 1.05 * predicted + handed_over);
}

// What differs between two schedules is what they keep: the rest, such as gradients on their way, is the same.
TEST(Memory, OfTheFirstStageIsPMicroBatchesIn1F1BAndMInGpipe) {
  const Schedule gpipe = lower(make_schedule("gpipe", 4, kMemoryMicrobatches));
  const Schedule one_f_one_b = lower(make_schedule("1f1b", 4, kMemoryMicrobatches));
  EXPECT_EQ(peak_activations(gpipe)[0], kMemoryMicrobatches);
  EXPECT_EQ(peak_activations(one_f_one_b)[0], 4);
  const auto bytes = predicted_bytes(Stage::Recompute::no);
  const double predicted = peak_bytes(gpipe, bytes)[0] - peak_bytes(one_f_one_b, bytes)[0];
  EXPECT_DOUBLE_EQ(predicted, (kMemoryMicrobatches - 4) * bytes[0]);
  const double saved = measured(gpipe, Stage::Recompute::no)[0] - measured(one_f_one_b, Stage::Recompute::no)[0];
  expect_saved(saved, predicted, 4 * kPooled);
}

TEST(Memory, IsCutByRecomputationAsPredicted) {
  const Schedule gpipe = lower(make_schedule("gpipe", 4, kMemoryMicrobatches));
  // One graph is there in the backward that needs it; the other micro-batches keep only what enters and leaves.
  const double predicted = (kMemoryMicrobatches - 1) *
                           (predicted_bytes(Stage::Recompute::no)[0] - predicted_bytes(Stage::Recompute::yes)[0]);
  const double saved = measured(gpipe, Stage::Recompute::no)[0] - measured(gpipe, Stage::Recompute::yes)[0];
  expect_saved(saved, predicted, kMemoryMicrobatches * kPooled);
}

/// Stages of linear layers, whose weights are large and whose activations are not small.
constexpr std::int64_t kWidth = 128;
constexpr std::int64_t kRows = 8;  // a micro-batch
constexpr int kLayers = 20;        // a stage
std::shared_ptr<Sequential> linear_stages(int stages) {
  auto model = std::make_shared<Sequential>();
  for (int i = 0; i < kLayers * stages; ++i) {
    model->add("fc" + std::to_string(i), std::make_shared<Linear>(kWidth, kWidth));
  }
  return model;
}

/// Peak bytes of each rank of an asynchronous pipeline, beyond one version of the weights.
std::vector<double> measured_with_versions(const Schedule& schedule, const Ledger& ledger) {
  std::vector<double> peaks(schedule.ranks.size());
  launch({.ranks = schedule.rank_count()}, [&](Rank& rank) {
    const auto model = linear_stages(schedule.stage_count());
    const auto part =
        stages_of(*model, split_by_layers(model->size(), schedule.stage_count()))[static_cast<std::size_t>(rank.index)];
    part->materialize(1, rank.device);
    const auto optimizer = make_optimizer(OptimizerKind::sgd, part->named_parameters(), 0.01);
    std::map<int, Stage> stages;
    stages.emplace(rank.index, Stage(part));
    Pipeline pipeline(std::move(stages),
                      std::vector<Shape>(static_cast<std::size_t>(schedule.stage_count()), {1, kWidth}), schedule,
                      rank.comm);
    const StepData data{[&](int) {
                          return test::random_tensor({kRows, kWidth}, "x", DType::float32, rank.device);
                        },
                        [&](int) { return Tensor::zeros({kRows}, DType::int32, rank.device); },
                        std::vector<std::int64_t>(static_cast<std::size_t>(schedule.microbatches), kRows)};
    Allocator& memory = allocator(rank.device);
    rank.comm.barrier();
    memory.reset_peak();
    const auto before = static_cast<double>(memory.stats().current_bytes);
    WeightVersions weights(part->named_parameters(), schedule, ledger, rank.index);
    const auto& actions = schedule.ranks[static_cast<std::size_t>(rank.index)];
    const auto update = [&](const Action&) {
      optimizer->step();
      optimizer->zero_grad();
    };
    pipeline.begin(schedule, data, {.update = update});
    for (std::size_t i = 0; i < actions.size(); ++i) {
      weights.choose(i);
      pipeline.perform(actions[i]);
      weights.free_unneeded(i);
    }
    pipeline.finish();
    peaks[static_cast<std::size_t>(rank.index)] = static_cast<double>(memory.stats().peak_bytes) - before;
  });
  return peaks;
}

TEST(Memory, OfVersionsIsWhatTheLedgerSays) {
  constexpr std::size_t kStages = 4;
  const std::vector<double> weights(kStages, kLayers * (kWidth * kWidth + kWidth) * 4.0);
  const std::vector<double> activations(kStages, kLayers * kRows * kWidth * 4.0);  // what leaves its layers
  for (const Versions versions : {Versions::stash, Versions::vertical, Versions::two_buffers, Versions::flush}) {
    for (const int batch : {1, 4}) {
      if (versions == Versions::two_buffers && batch < static_cast<int>(kStages)) {
        continue;
      }
      const Schedule schedule = lower(pipedream_schedule(std::vector<int>(kStages, 1), 12, batch, versions));
      const Ledger ledger = make_ledger(schedule, versions);
      const auto peaks = measured_with_versions(schedule, ledger);
      const auto predicted = peak_bytes(schedule, ledger, weights, activations);
      for (std::size_t s = 0; s < kStages; ++s) {
        EXPECT_NEAR((peaks[s] + weights[s]) / predicted[s], 1, 0.05)
            << to_string(versions) << ", stage " << s << ", batches of " << batch;
      }
    }
  }
}

}  // namespace
}  // namespace stagecoach
