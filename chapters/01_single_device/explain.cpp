#include "chapters/01_single_device/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "chapters/common/open.h"
#include "chapters/common/planned_step.h"
#include "core/allocator.h"
#include "core/autograd/backward.h"
#include "core/base/phrases.h"
#include "core/base/printable.h"
#include "core/base/text_file.h"
#include "core/base/units.h"
#include "core/ops.h"
#include "datasets/shares.h"
#include "nn/batch_position.h"
#include "parallel/schedule/schedule_kinds.h"
#include "parallel/schedule/text.h"
#include "parallel/training/run_files.h"
#include "parallel/training/run_folder.h"

namespace stagecoach {
namespace {

/// Returns one character per unit of time: a forward takes 1, a backward 2.
std::string timeline(std::int64_t microbatches) {
  std::string line;
  for (std::int64_t m = 0; m < microbatches; ++m) {
    line += fmt::format("|F{}|B{}   ", m, m);
  }
  return line + "|";
}

/// Prints each node with what it saved, and returns the total bytes. Storage that several nodes keep is counted once,
/// where it first appears.
std::size_t print_kept(const Tensor& loss, const NamedTensors& parameters) {
  std::set<const void*> seen;
  for (const auto& [name, tensor] : parameters) {
    seen.insert(tensor.storage()->data());
  }
  std::size_t total = 0;
  fmt::print("\nWhat autograd keeps from the forward of one micro-batch\n  {:<20} {:<18} {:<24} {:>12}\n", "operation",
             "keeps", "shape", "new bytes");
  for (const auto& node : recorded_nodes(loss)) {
    for (const auto& saved : node->saved()) {
      const bool is_new = seen.insert(saved.tensor.storage()->data()).second;
      const std::size_t bytes = is_new ? saved.tensor.bytes() : 0;
      total += bytes;
      fmt::print("  {:<20} {:<18} {:<24} {:>12}\n", node->name(), saved.name, to_string(saved.tensor.shape()), bytes);
    }
  }
  fmt::print("  {:<64} {:>12}\n", "all (parameters and what an earlier row keeps count 0)", total);
  return total;
}

}  // namespace

void explain(const Settings& settings, const Dataset& data, const SingleDeviceStep& train_step) {
  const TrainingSettings& training = settings.training;
  const DeviceModel& on = *settings.world.modelled_device;
  constexpr Device kPlan{DeviceType::meta};  // nothing is computed, so every model fits
  const auto model = make_model(training, data, kPlan);
  const auto optimizer = make_optimizer(training, model->named_parameters());
  const LossFunction summed_loss = loss_of(training);
  const std::int64_t images = std::min(training.batch_size, data.size());
  const std::vector<std::int64_t> sizes = micro_batch_sizes(images, training.microbatches, training.sum_groups);
  const auto count = std::ssize(sizes);

  // Stage 0, the only one, runs the forward and backward of one micro-batch after the other: 0F0,0B0,0F1,0B1
  const std::string schedule = to_text(make_schedule("1f1b", 1, static_cast<int>(count)));
  fmt::print(
      "One step of {} on {}: {} in {}\n  schedule  {}  timeline  {}\n"
      "  idle 0.0% (one device always has work), 1 activation set alive at once\n",
      training.model, to_string(*settings.world.device), counted(images, "image"), counted(count, "micro-batch"),
      schedule, timeline(std::min<std::int64_t>(count, 8)));

  const BatchScope position(BatchPosition{});  // for layers that draw random numbers
  std::size_t kept = 0;
  {
    const Tensor logits = model->forward(model_input(blank_inputs(training, sizes[0], kPlan)));
    kept = print_kept(summed_loss(logits, blank_targets(training, sizes[0], kPlan)), model->named_parameters());
  }
  std::size_t weights = 0;
  std::size_t state = 0;
  for (const auto& [name, tensor] : model->named_parameters()) {
    weights += tensor.bytes();
  }
  for (const auto& [name, tensor] : optimizer->state()) {
    state += tensor.bytes();
  }
  fmt::print(
      "\nBytes of the weights {}, of their gradients {}, of the optimizer's state {}\n"
      "The graph keeps {:.1f} times as much as the weights\n",
      weights, weights, state, static_cast<double>(kept) / static_cast<double>(weights));

  std::size_t held = 0;
  double seconds = 3 * static_cast<double>(count);  // units, unless the device is modelled
  if (settings.world.clock == ClockKind::modelled) {
    const auto clock = make_clock(ClockKind::modelled, kPlan, {}, on);
    EpochSums sums(kPlan);
    const double begin = clock->now();
    train_step(blank_inputs(training, images, kPlan), blank_targets(training, images, kPlan), training, *model,
               summed_loss, *optimizer, sums);
    seconds = clock->now() - begin;
    held = allocator(kPlan).stats().peak_bytes;
    fmt::print("\nA step takes {:.3f} ms on {}: {:.0f} img/s, with {:.3f} MiB at most\n", 1e3 * seconds,
               printable(on.name), static_cast<double>(images) / seconds, static_cast<double>(held) / kMiB);
  }
  if (!settings.run.out.empty()) {
    const std::filesystem::path folder = make_folder(settings.run.out);
    write_text(folder / run_files::kSchedule, schedule);
    PlannedStep step{.seconds = seconds, .peak_activations = {1}};
    if (held > 0) {
      step.memory_bytes = {static_cast<double>(held)};
    }
    write_planned_step(folder, settings, step);
  }
}

}  // namespace stagecoach
