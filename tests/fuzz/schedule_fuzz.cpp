// Tables of actions, which --schedule reads: parallel/schedule/text.h, and what a legal one then goes through.

#include <vector>

#include "core/base/error.h"
#include "parallel/schedule/check.h"
#include "parallel/schedule/draw.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/simulate.h"
#include "parallel/schedule/text.h"
#include "tests/fuzz/target.h"

using namespace stagecoach;

namespace {

/// The ranks of a table but those without actions, whose lines are skipped when it is read again.
std::vector<std::vector<Action>> busy_ranks(const Schedule& schedule) {
  auto ranks = schedule.ranks;
  std::erase_if(ranks, [](const auto& actions) { return actions.empty(); });
  return ranks;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Schedule schedule;
  if (!fuzz::accepts<UsageError>([&] { schedule = schedule_from_text(fuzz::text_of(data, size), "table.csv"); }) ||
      !check(schedule).empty()) {
    return 0;
  }
  fuzz::require(schedule_from_text(to_text(schedule), "table.csv").ranks == busy_ranks(schedule),
                "the table is another one after it was written and read");
  const Schedule lowered = schedule.is_lowered ? schedule : lower(schedule);
  const Simulation simulation = simulate(lowered, Costs::uniform(schedule.stage_count(), 1, 1, 1));
  fuzz::require(simulation.idle >= 0 && simulation.idle <= 1, "the idle share is not between 0 and 1");
  fuzz::require(!draw_text(lowered, simulation).empty(), "nothing is drawn");
  return 0;
}
