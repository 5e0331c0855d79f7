#include "chapters/07_one_controller/explain.h"

#include <fmt/format.h>

#include "chapters/07_one_controller/clock_ticks.h"
#include "chapters/common/console.h"

namespace stagecoach {
namespace {

/// Returns one line per clock tick: which micro-batch each device is given.
std::string tick_table(const PlacedModel& model, int microbatches) {
  std::string table = "  tick";
  for (const Device device : model.devices) {
    table += fmt::format(" {:>7}", to_string(device));
  }
  table += "\n";
  for (int tick = 0; tick < tick_count(model.size(), microbatches); ++tick) {
    std::vector<std::string> cells(model.devices.size(), ".");
    for (const auto [stage, microbatch] : forwards_of_tick(tick, model.size(), microbatches)) {
      cells[static_cast<std::size_t>(stage)] = fmt::format("{}F{}", stage, microbatch);
    }
    table += fmt::format("  {:>4}", tick + 1);
    for (const std::string& cell : cells) {
      table += fmt::format(" {:>7}", cell);
    }
    table += "\n";
  }
  return table;
}

}  // namespace

void explain(const Settings& settings, const PlacedModel& model) {
  const TrainingSettings& training = settings.training;
  const auto microbatches = static_cast<int>(training.microbatches);
  print_text("Layers and their devices\n" +
             layer_table(model, {training.batch_size, 3, training.image_size, training.image_size}));
  print_text(fmt::format("The forward of {} images in {} micro-batch(es): {} clock ticks\n{}", training.batch_size,
                         microbatches, tick_count(model.size(), microbatches), tick_table(model, microbatches)));
  print_text(
      "Then the outputs are concatenated, and one loss and one backward follow: the backward runs through the same "
      "devices in the reverse order.\n");
}

}  // namespace stagecoach
