#include "chapters/common/planned_step.h"

#include <nlohmann/json.hpp>

#include "core/base/parse_json.h"
#include "core/base/text_file.h"
#include "parallel/comm/clock.h"
#include "parallel/training/run_files.h"

namespace stagecoach {

void write_planned_step(const std::filesystem::path& folder, const Settings& settings, const PlannedStep& step) {
  using Json = nlohmann::ordered_json;
  Json json{{"step_seconds", step.seconds},
            {"clock", settings.run.profile ? to_string(settings.world.clock) : "units"},
            {"idle", step.idle},
            {"idle_in_span", step.idle_in_span},
            {"peak_activations", step.peak_activations},
            {"memory_bytes", step.memory_bytes},
            {"link_bytes", step.link_bytes},
            {"staleness", step.staleness}};
  if (step.further_seconds) {
    json["further_step_seconds"] = *step.further_seconds;
  }
  if (!step.modes.empty()) {
    json["modes"] = step.modes;
  }
  json["settings"] = parse_json<Json>(config_json(settings), "the settings", "config_json wrote them");
  write_text(folder / run_files::kPrediction, json.dump() + "\n");
}

}  // namespace stagecoach
