#include "chapters/common/planned_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/units.h"
#include "parallel/schedule/gradient_order.h"
#include "parallel/schedule/traffic.h"

namespace stagecoach {
namespace {

/// Returns the bytes of the images of a micro-batch, as the first stage gets them.
std::int64_t input_bytes(const Plan& plan, std::int64_t microbatch) {
  return static_cast<std::int64_t>(plan.shapes[0].with(0, microbatch).numel() * sizeof(float));
}

}  // namespace

std::vector<PlannedMemory> planned_memory(const Plan& plan, std::int64_t microbatch) {
  const auto weights = weight_bytes_of_stages(plan.profile, plan.split);
  const auto workspace = workspace_bytes_of_stages(plan.profile, plan.split);
  const auto rebuilt = rebuilt_bytes(plan);
  const auto deferred = deferred_bytes_of_stages(plan.profile, plan.split, input_bytes(plan, microbatch));
  const auto activations = peak_bytes(plan.schedule, kept_bytes(plan, microbatch), deferred);
  const std::vector<double> none(weights.size());  // the first layer counts its input then, if it needs it
  const auto received = peak_bytes(plan.schedule, received_bytes(plan, microbatch), none);
  const auto posted = peak_receive_bytes(plan.schedule, message_bytes(plan, microbatch));
  const auto waiting = peak_waiting_bytes(plan.schedule, weights);  // gradients are as large as weights
  std::vector<PlannedMemory> ranks(activations.size());
  for (std::size_t s = 0; s < weights.size(); ++s) {
    PlannedMemory& rank = ranks[static_cast<std::size_t>(plan.first_rank(static_cast<int>(s)))];
    rank.weights += weights[s];
    rank.activations = std::max(rank.activations, rebuilt[s]);  // for the backward of one stage at a time
    rank.workspace = std::max(rank.workspace, workspace[s]);
  }
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    ranks[r].gradients = ranks[r].weights + waiting[r];
    ranks[r].optimizer = optimizer_bytes_per_weight_byte(plan.settings.training) *
                         updated_bytes(plan, static_cast<int>(r), ranks[r].weights);
    ranks[r].activations += activations[r];
    ranks[r].received = received[r] + posted[r];
  }
  return ranks;
}

void print_memory(const Plan& plan, std::int64_t microbatch, const std::vector<PlannedMemory>& ranks) {
  fmt::print("\nMemory, in MiB; activations are those of one micro-batch\n  {:<6} {:>5} {:>8} {:>9} {:>12} {:>9}\n",
             "stage", "rank", "layers", "weights", "activations", "sent on");
  const auto kept = kept_bytes(plan, microbatch);
  const auto weights = weight_bytes_of_stages(plan.profile, plan.split);
  std::size_t layer = 0;
  for (std::size_t s = 0; s < kept.size(); ++s) {
    layer += static_cast<std::size_t>(plan.split[s]);
    const std::int64_t sent = s + 1 < kept.size() ? plan.profile[layer - 1].output_bytes : 0;
    fmt::print("  {:<6} {:>5} {:>8} {:>9.3f} {:>12.3f} {:>9.3f}\n", s, plan.schedule.stage_to_rank[s], plan.split[s],
               weights[s] / kMiB, kept[s] / kMiB, static_cast<double>(sent) / kMiB);
  }
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const double waiting = ranks[r].gradients - ranks[r].weights;
    fmt::print(
        "  rank {} holds at most {:.3f} MiB of activations at once{}\n", r, ranks[r].activations / kMiB,
        waiting > 0 ? fmt::format(", and {:.3f} MiB of gradients that wait for their turn", waiting / kMiB) : "");
  }
}

void print_planned_memory(const std::vector<PlannedMemory>& ranks) {
  fmt::print(
      "\nPredicted resident memory of each rank as a process of its own, in MiB, not counting the program and the "
      "images of --data\n  {:<6} {:>9} {:>9} {:>9} {:>9} {:>12} {:>9} {:>9}\n",
      "rank", "total", "weights", "gradients", "optimizer", "activations", "received", "workspace");
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const PlannedMemory& rank = ranks[r];
    fmt::print("  {:<6} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>12.3f} {:>9.3f} {:>9.3f}\n", r, rank.total() / kMiB,
               rank.weights / kMiB, rank.gradients / kMiB, rank.optimizer / kMiB, rank.activations / kMiB,
               rank.received / kMiB, rank.workspace / kMiB);
  }
}

double optimizer_bytes_per_weight_byte(const TrainingSettings& training) {
  switch (training.optimizer) {
    case OptimizerKind::sgd:
      return training.momentum != 0 ? 1 : 0;
    case OptimizerKind::adagrad:
      return 1;  // the sum of the squares
    default:
      return 2;  // the first and the second moment
  }
}

double updated_bytes(const Plan& plan, int rank, double weights) {
  return plan.tied && plan.tied->copy_rank == rank ? weights - plan.tied->bytes : weights;
}

std::vector<double> kept_bytes(const Plan& plan, std::int64_t microbatch) {
  return bytes_of_stages(plan.profile, plan.split, input_bytes(plan, microbatch), plan.recompute);
}

std::vector<double> rebuilt_bytes(const Plan& plan) {
  return plan.recompute == Stage::Recompute::yes ? bytes_of_stages(plan.profile, plan.split, 0, Stage::Recompute::no)
                                                 : std::vector<double>(plan.split.size());
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

std::vector<NamedNumbers> parts_of_memory(const Plan& plan) {
  std::vector<NamedNumbers> all;
  if (plan.profile.empty()) {
    return all;
  }
  const std::vector<PlannedMemory> planned = planned_memory(plan, plan.microbatch);
  for (const std::vector<int>& pipeline : plan.pipelines) {
    for (std::size_t i = 0; i < pipeline.size(); ++i) {
      const auto rank = static_cast<std::size_t>(pipeline[i]);
      all.resize(std::max(all.size(), rank + 1));
      all[rank] = {{"weights", planned[i].weights},     {"gradients", planned[i].gradients},
                   {"optimizer", planned[i].optimizer}, {"activations", planned[i].activations},
                   {"received", planned[i].received},   {"workspace", planned[i].workspace}};
    }
  }
  return all;
}

}  // namespace stagecoach
