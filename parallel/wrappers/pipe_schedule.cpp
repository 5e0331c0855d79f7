#include "parallel/wrappers/pipe_schedule.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "core/base/text_file.h"
#include "core/base/throw_if.h"
#include "parallel/schedule/check.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/schedule_kinds.h"
#include "parallel/schedule/simulate.h"
#include "parallel/schedule/text.h"

namespace stagecoach {
namespace {

constexpr int kRanks = 2;
constexpr int kMicrobatches = 4;

int or_default(int setting, int otherwise) { return setting == 0 ? otherwise : setting; }

/// Returns what make_schedule makes, with two stages per rank, or the nearest number that the schedule takes, where the
/// settings leave the choice. Its errors name the micro-batches as PipeSettings does.
Schedule schedule_by_name(const std::string& name, const PipeSettings& settings) try {
  const ScheduleKind* kind = find_schedule(name);
  const int stages = kind == nullptr ? 0 : std::clamp(2, kind->min_chunks, kind->max_chunks);
  return make_schedule(name, or_default(settings.ranks, kRanks), or_default(settings.chunks, kMicrobatches),
                       or_default(settings.stages_per_rank, stages));
} catch (const UsageError& error) {
  constexpr std::string_view kTheirs = "`microbatches`";
  std::string text = error.what();
  for (auto at = text.find(kTheirs); at != std::string::npos; at = text.find(kTheirs)) {
    text.replace(at + 1, kTheirs.size() - 2, "chunks");  // between the quotes
  }
  throw UsageError(text);
}

/// Returns a user's own table. `name` names it in errors.
Schedule checked_table(Schedule table, const std::string& name, const PipeSettings& settings) {
  require_legal(table, name);
  throw_if<UsageError>(table.batch > 0 || !table.replicas.empty(),
                       "Pipe: expected a schedule of one step, without updates and replicas, got {}", name);
  const int chunks = or_default(settings.chunks, table.microbatches);
  const int ranks = or_default(settings.ranks, table.rank_count());
  throw_if<UsageError>(chunks != table.microbatches || ranks != table.rank_count() || settings.stages_per_rank != 0,
                       "Pipe: {} is for {} ranks and {} micro-batches, PipeSettings has ranks {}, chunks {} and "
                       "stages_per_rank {}; leave "
                       "them out",
                       name, table.rank_count(), table.microbatches, ranks, chunks, settings.stages_per_rank);
  return table;
}

}  // namespace

Schedule schedule_of(const PipeSettings& settings, int layers) {
  const auto* name = std::get_if<std::string>(&settings.schedule);
  const bool is_file = name != nullptr && find_schedule(*name) == nullptr && std::filesystem::exists(*name);
  Schedule schedule;
  if (name == nullptr) {
    schedule = checked_table(std::get<Schedule>(settings.schedule), "the schedule", settings);
  } else if (is_file) {
    const std::string text = read_text(*name, "check the file that PipeSettings names");
    schedule = checked_table(schedule_from_text(text, *name), *name, settings);
  } else {
    schedule = schedule_by_name(*name, settings);
    schedule.sends_wait = find_schedule(*name)->sends_wait;
  }
  static_cast<void>(split_by_layers(layers, schedule.stage_count()));  // throws for too many stages
  throw_if<UsageError>(!settings.split.empty() && static_cast<int>(settings.split.size()) != schedule.stage_count(),
                       "Pipe: expected a split into {} stages, one per stage of the schedule, got {}",
                       schedule.stage_count(), settings.split.size());
  return schedule.is_lowered ? schedule : lower(schedule, {.sends_wait = schedule.sends_wait});
}

double ideal_idle(const Schedule& schedule, const PipeSettings& settings) {
  const Costs costs = Costs::uniform(schedule.stage_count(), 1, 1, 1);
  return simulate(schedule, settings.recompute ? with_recompute(costs) : costs).idle;
}

}  // namespace stagecoach
