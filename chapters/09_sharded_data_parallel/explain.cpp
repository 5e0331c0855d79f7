#include "chapters/09_sharded_data_parallel/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "chapters/common/open.h"
#include "chapters/common/planned_step.h"
#include "core/allocator.h"
#include "core/base/phrases.h"
#include "core/base/printable.h"
#include "core/base/throw_if.h"
#include "core/base/units.h"
#include "datasets/shares.h"
#include "parallel/launch/launch.h"
#include "parallel/training/run_folder.h"

namespace stagecoach {
namespace {

/// What a step takes on one rank.
struct RankStep {
  double seconds = 0;
  double waited = 0;
  double peak_bytes = 0;  ///< of its tensors, also while the model was made
  double shard_bytes = 0;
  std::map<int, double> sent;  ///< bytes, by receiver
};

/// Returns this rank's part of an average batch.
MicroBatches blank_batch(const Settings& settings, std::int64_t images, const Rank& rank) {
  const TrainingSettings& training = settings.training;
  const std::int64_t count = share_of(images, rank.index, rank.world).count;
  return {micro_batch_sizes(count, training.microbatches), images,
          micro_batches(blank_inputs(training, count, rank.device), training.microbatches),
          micro_batches(blank_targets(training, count, rank.device), training.microbatches)};
}

RankStep third_step(const Settings& settings, const Dataset& data, const MakeReplica& make, Rank& rank) {
  const MicroBatches batch = blank_batch(settings, std::min(settings.training.batch_size, data.size()), rank);
  Allocator& memory = allocator(rank.device);
  const std::size_t held_before = memory.stats().current_bytes;  // a batch is in the host's memory
  memory.reset_peak();
  const auto model = make_blank_model(settings, data, rank.comm);
  const auto replica = make(settings, *model, rank.comm);
  const auto optimizer = make_optimizer(settings.training, replica->shards());
  replica->clip_norms_of(*optimizer);
  EpochSums sums(rank.device);
  RankStep step;
  for (int i = 0; i < 3; ++i) {  // in the first step the weights are not cut yet
    const double begin = rank.comm.clock().now();
    const double waited = rank.comm.clock().waited();
    const std::map<int, double> sent = rank.comm.bytes_sent();
    replica->forward_backward(batch, sums);
    optimizer->step();
    optimizer->zero_grad();
    step.seconds = rank.comm.clock().now() - begin;
    step.waited = rank.comm.clock().waited() - waited;
    step.sent = rank.comm.bytes_sent();
    for (const auto& [to, bytes] : sent) {
      step.sent[to] -= bytes;
    }
  }
  for (const auto& [name, shard] : replica->shards()) {
    step.shard_bytes += static_cast<double>(shard.bytes());
  }
  step.peak_bytes = static_cast<double>(memory.stats().peak_bytes - held_before);
  return step;
}

void print(const Settings& settings, const std::vector<RankStep>& steps, const PlannedStep& planned) {
  fmt::print("A step of {}: {} on {}, {}, link {}\n\n  {:<4} {:>10} {:>7} {:>12} {:>10} {:>12}\n",
             settings.training.model, counted(settings.training.batch_size, "sample"),
             counted(settings.world.ranks, "rank"), printable(settings.world.modelled_device->name),
             settings.world.link.text(), "rank", "ms", "idle", "shard MiB", "peak MiB", "MiB sent");
  for (std::size_t r = 0; r < steps.size(); ++r) {
    double sent = 0;
    for (const auto& [to, bytes] : steps[r].sent) {
      sent += bytes;
    }
    fmt::print("  {:<4} {:>10.3f} {:>6.1f}% {:>12.3f} {:>10.3f} {:>12.3f}\n", r, 1e3 * steps[r].seconds,
               100 * steps[r].waited / steps[r].seconds, steps[r].shard_bytes / kMiB, steps[r].peak_bytes / kMiB,
               sent / kMiB);
  }
  fmt::print("\nA step takes {:.3f} ms: {:.0f} samples/s; the ranks wait for {:.1f}% of it\n", 1e3 * planned.seconds,
             static_cast<double>(settings.training.batch_size) / planned.seconds, 100 * planned.idle);
}

}  // namespace

void explain(const Settings& settings, const Dataset& data, const MakeReplica& make) {
  throw_if<UsageError>(settings.world.clock != ClockKind::modelled,
                       "--explain: this chapter plans for modelled devices; give --clock modelled too");
  World world = open_world(settings.world);
  world.device = DeviceType::meta;
  std::vector<RankStep> steps(static_cast<std::size_t>(world.ranks));
  launch(world,
         [&](Rank& rank) { steps[static_cast<std::size_t>(rank.index)] = third_step(settings, data, make, rank); });
  PlannedStep planned{.peak_activations = std::vector<int>(steps.size(), 1)};
  for (const RankStep& step : steps) {
    planned.seconds = std::max(planned.seconds, step.seconds);
    planned.idle += step.waited / step.seconds / static_cast<double>(steps.size());
    planned.memory_bytes.push_back(step.peak_bytes);
    for (const auto& [to, bytes] : step.sent) {
      planned.link_bytes = std::max(planned.link_bytes, bytes);
    }
  }
  planned.idle_in_span = planned.idle;
  print(settings, steps, planned);
  if (!settings.run.out.empty()) {
    write_planned_step(make_folder(settings.run.out), settings, planned);
  }
}

}  // namespace stagecoach
