#include "parallel/advise/late.h"

#include <algorithm>

#include "core/base/throw_if.h"
#include "parallel/schedule/ledger.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/pipedream.h"

namespace stagecoach {
namespace {

constexpr Versions kLateVersions[] = {Versions::stash, Versions::two_buffers};

}  // namespace

const std::vector<std::string>& late_schedules() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Versions versions : kLateVersions) {
      all.push_back("pipedream-" + to_string(versions));
    }
    return all;
  }();
  return names;
}

std::optional<Versions> versions_of(const std::string& schedule) {
  const auto found = std::find(late_schedules().begin(), late_schedules().end(), schedule);
  return found == late_schedules().end() ? std::nullopt
                                         : std::optional(kLateVersions[found - late_schedules().begin()]);
}

Schedule late_schedule(Versions versions, int ranks, int microbatches) {
  const int full = 1 + ceil_div(2 * ranks, microbatches);  // messages fill the pipeline later than computations do
  const int third = 2 * ceil_div(full, 2);                 // every other step may take longer
  return lower(pipedream_schedule(std::vector(static_cast<std::size_t>(ranks), 1), 3 * third * microbatches,
                                  microbatches, versions));
}

ActionSeconds seconds_of_late_actions(const Schedule& schedule, Versions versions,
                                      const std::vector<StageSeconds>& stages) {
  ActionSeconds all(schedule.ranks.size());
  std::vector<bool> has_gradients(stages.size());
  const Ledger ledger = make_ledger(schedule, versions);
  std::vector<std::vector<std::size_t>> last;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    last.push_back(last_uses(schedule, ledger, static_cast<int>(rank)));
  }
  for_each_action(schedule, [&](std::size_t rank, std::size_t index, const Action& action) {
    const auto s = static_cast<std::size_t>(action.stage);
    if (action.operation == Operation::update) {
      const auto before = static_cast<std::size_t>(ledger[rank][index] - 1);
      const bool clones = last[rank][before] > index;
      all[rank].push_back(stages[s].update + stages[s].update_once + (clones ? stages[s].clone : 0));
      has_gradients[s] = false;
    } else if (!is_message(action.operation)) {
      all[rank].push_back(seconds_of(action.operation, stages[s], !has_gradients[s]));
      has_gradients[s] = has_gradients[s] || gives_weight_gradient(action.operation);
    }
  });
  return all;
}

double seconds_per_batch(const Schedule& schedule, const Simulation& simulation) {
  std::vector<double> ends;  // of the first rank's updates, whose batches are the last to be done
  for (std::size_t i = 0; i < schedule.ranks.front().size(); ++i) {
    if (schedule.ranks.front()[i].operation == Operation::update) {
      ends.push_back(simulation.timeline.front()[i].end);
    }
  }
  const std::size_t third = ends.size() / 3;
  return (ends[2 * third - 1] - ends[third - 1]) / static_cast<double>(third);
}

int staleness_of(const Schedule& schedule, Versions versions) {
  const std::vector<int> delays = largest_delays(schedule, make_ledger(schedule, versions));
  return *std::max_element(delays.begin(), delays.end());
}

std::vector<RankMemory> with_versions(std::vector<RankMemory> memory, const Schedule& schedule, Versions versions,
                                      const std::vector<double>& weights) {
  const std::vector<int> count = peak_versions(schedule, make_ledger(schedule, versions));
  for (std::size_t r = 0; r < memory.size(); ++r) {
    memory[r].weights += (count[r] - 1) * weights[r];
  }
  return memory;
}

}  // namespace stagecoach
