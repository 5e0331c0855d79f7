#include "chapters/common/memory_prediction.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "parallel/schedule/gradient_order.h"
#include "parallel/schedule/simulate.h"
#include "parallel/schedule/traffic.h"

namespace stagecoach {

double optimizer_bytes_per_weight_byte(const TrainingSettings& training) {
  if (training.optimizer == OptimizerKind::adam) {
    return 2;  // the first and the second moment
  }
  return training.momentum != 0 ? 1 : 0;
}

std::vector<double> received_bytes(const Plan& plan, std::int64_t microbatch) {
  std::vector<double> bytes = message_bytes(plan, microbatch);
  bytes.insert(bytes.begin(), 0);  // the first stage gets images, and no message
  for (int stage = 1; stage < plan.stages(); ++stage) {
    if (plan.first_rank(stage) == plan.first_rank(stage - 1)) {
      bytes[static_cast<std::size_t>(stage)] = 0;
    }
  }
  return bytes;
}

std::vector<RankMemory> predict_memory(const TrainingSettings& training, const PipelineSettings& pipeline,
                                       const Plan& plan, std::int64_t microbatch) {
  const auto images = static_cast<std::int64_t>(plan.shapes[0].with(0, microbatch).numel() * sizeof(float));
  const auto recompute = pipeline.recompute ? Stage::Recompute::yes : Stage::Recompute::no;
  const auto weights = weight_bytes_of_stages(plan.profile, plan.split);
  const auto workspace = workspace_bytes_of_stages(plan.profile, plan.split);
  const auto graph = bytes_of_stages(plan.profile, plan.split, 0, Stage::Recompute::no);
  const auto activations = peak_bytes(plan.schedule, bytes_of_stages(plan.profile, plan.split, images, recompute));
  const auto received = peak_bytes(plan.schedule, received_bytes(plan, microbatch));
  const auto posted = peak_receive_bytes(plan.schedule, message_bytes(plan, microbatch));
  const auto waiting = peak_waiting_bytes(plan.schedule, weights);  // gradients are as large as weights
  std::vector<RankMemory> ranks(activations.size());
  for (std::size_t s = 0; s < weights.size(); ++s) {
    RankMemory& rank = ranks[static_cast<std::size_t>(plan.first_rank(static_cast<int>(s)))];
    rank.weights += weights[s];
    const double again = pipeline.recompute ? graph[s] : 0;  // built for the backward of one stage at a time
    rank.activations = std::max(rank.activations, again);
    rank.workspace = std::max(rank.workspace, workspace[s]);
  }
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    ranks[r].gradients = ranks[r].weights + waiting[r];
    ranks[r].optimizer = optimizer_bytes_per_weight_byte(training) * ranks[r].weights;
    ranks[r].activations += activations[r];
    ranks[r].received = received[r] + posted[r];
  }
  return ranks;
}

void print_predicted_memory(const std::vector<RankMemory>& ranks) {
  constexpr double kMiB = 1 << 20;
  fmt::print(
      "\nPredicted resident memory of each rank as a process of its own, in MiB, not counting the program and the "
      "images of "
      "--data\n  {:<6} {:>9} {:>9} {:>9} {:>9} {:>12} {:>9} {:>9}\n",
      "rank", "total", "weights", "gradients", "optimizer", "activations", "received", "workspace");
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const RankMemory& rank = ranks[r];
    fmt::print("  {:<6} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>12.3f} {:>9.3f} {:>9.3f}\n", r, rank.total() / kMiB,
               rank.weights / kMiB, rank.gradients / kMiB, rank.optimizer / kMiB, rank.activations / kMiB,
               rank.received / kMiB, rank.workspace / kMiB);
  }
}

}  // namespace stagecoach
