#include "parallel/schedule/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/base/error.h"

namespace stagecoach {
namespace {

/// Returns how many updates of a stage come before each of its forwards: one number per micro-batch.
std::vector<int> updates_before_forwards(const Schedule& schedule, int stage) {
  std::vector<int> before(static_cast<std::size_t>(schedule.microbatches));
  std::vector<int> updates(schedule.ranks.size());
  for_each_action(schedule, [&](std::size_t r, std::size_t, const Action& action) {
    if (action.stage == stage && action.operation == Operation::update) {
      updates[r] = action.microbatch + 1;
    } else if (action.stage == stage && action.operation == Operation::forward) {
      before[static_cast<std::size_t>(action.microbatch)] = updates[r];
    }
  });
  return before;
}

/// Returns the version that each forward of `stage` uses: one per micro-batch.
std::vector<int> versions_of_forwards(const Schedule& schedule, int stage, Versions versions) {
  if (versions != Versions::two_buffers) {
    return updates_before_forwards(schedule, versions == Versions::vertical ? 0 : stage);
  }
  std::vector<int> one_before_the_last(static_cast<std::size_t>(schedule.microbatches));
  for (int i = 0; i < schedule.microbatches; ++i) {
    one_before_the_last[static_cast<std::size_t>(i)] = std::max(i / schedule.batch - 1, 0);
  }
  return one_before_the_last;
}

/// Returns for each action of `rank` how many versions exist while it runs. A run keeps these versions in memory.
std::vector<std::size_t> versions_during(const Schedule& schedule, const Ledger& ledger, std::size_t rank) {
  const auto last = last_uses(schedule, ledger, static_cast<int>(rank));
  std::vector<std::size_t> kept{0};
  std::vector<std::size_t> counts;
  std::size_t newest = 0;
  for (std::size_t action_index = 0; action_index < schedule.ranks[rank].size(); ++action_index) {
    if (schedule.ranks[rank][action_index].operation == Operation::update) {
      if (last[newest] <= action_index) {
        std::erase(kept, newest);  // overwritten
      }
      kept.push_back(++newest);
    }
    counts.push_back(kept.size());
    std::erase_if(kept, [&](std::size_t version) { return version != newest && last[version] <= action_index; });
  }
  return counts;
}

}  // namespace

Ledger make_ledger(const Schedule& schedule, Versions versions) {
  STAGECOACH_CHECK(schedule.batch > 0, "ledger: expected a schedule with updates, got one without");
  std::vector<std::vector<int>> forwards;
  for (int s = 0; s < schedule.stage_count(); ++s) {
    forwards.push_back(versions_of_forwards(schedule, s, versions));
  }
  Ledger ledger(schedule.ranks.size());
  std::vector<int> newest(schedule.ranks.size());
  for_each_action(schedule, [&](std::size_t r, std::size_t, const Action& action) {
    const auto [operation, stage, microbatch] = action;
    int version = kNoVersion;
    if (operation == Operation::update) {
      version = ++newest[r];
    } else if (is_computation(operation)) {
      const bool as_forward = versions != Versions::none || operation == Operation::forward;
      version =
          as_forward ? forwards[static_cast<std::size_t>(stage)][static_cast<std::size_t>(microbatch)] : newest[r];
      STAGECOACH_CHECK(version <= newest[r], "ledger: {} on rank {} needs version {}, but the newest version is {}",
                       to_string(action), r, version, newest[r]);
    }
    ledger[r].push_back(version);
  });
  return ledger;
}

std::vector<std::size_t> last_uses(const Schedule& schedule, const Ledger& ledger, int rank) {
  const auto& actions = schedule.ranks[static_cast<std::size_t>(rank)];
  const auto& versions = ledger[static_cast<std::size_t>(rank)];
  const int newest = versions.empty() ? 0 : *std::max_element(versions.begin(), versions.end());
  std::vector<std::size_t> last(static_cast<std::size_t>(newest) + 1);
  for (std::size_t action_index = 0; action_index < actions.size(); ++action_index) {
    if (is_computation(actions[action_index].operation)) {
      last[static_cast<std::size_t>(versions[action_index])] = action_index;
    }
  }
  return last;
}

std::vector<int> peak_versions(const Schedule& schedule, const Ledger& ledger) {
  std::vector<int> peaks(schedule.ranks.size());
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    for (const std::size_t versions : versions_during(schedule, ledger, r)) {
      peaks[r] = std::max(peaks[r], static_cast<int>(versions));
    }
  }
  return peaks;
}

std::vector<double> peak_bytes(const Schedule& schedule, const Ledger& ledger, const std::vector<double>& weights,
                               const std::vector<double>& activations) {
  std::vector<double> peaks(schedule.ranks.size());
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    const auto counts = versions_during(schedule, ledger, r);
    double in_flight = 0;
    double gradients = 0;
    for (std::size_t action_index = 0; action_index < schedule.ranks[r].size(); ++action_index) {
      const Action& action = schedule.ranks[r][action_index];
      const auto stage = static_cast<std::size_t>(action.stage);
      const double versions = static_cast<double>(counts[action_index]) * weights[stage];
      const auto note = [&] { peaks[r] = std::max(peaks[r], versions + gradients + in_flight); };
      in_flight += action.operation == Operation::forward ? activations[stage] : 0;
      note();
      if (action.operation == Operation::backward) {  // layer by layer, it adds gradients and frees activations
        in_flight -= activations[stage];
        gradients = weights[stage];
        note();
      } else if (action.operation == Operation::update) {
        gradients = 0;
      }
    }
  }
  return peaks;
}

std::vector<std::vector<int>> delays_of(const Schedule& schedule, const Ledger& ledger) {
  std::vector<std::vector<int>> delays(static_cast<std::size_t>(schedule.stage_count()),
                                       std::vector<int>(static_cast<std::size_t>(schedule.microbatches)));
  for_each_action(schedule, [&](std::size_t r, std::size_t action_index, const Action& action) {
    if (action.operation == Operation::forward) {
      delays[static_cast<std::size_t>(action.stage)][static_cast<std::size_t>(action.microbatch)] =
          action.microbatch / schedule.microbatches_per_update(action.stage) - ledger[r][action_index];
    }
  });
  return delays;
}

std::vector<int> largest_delays(const Schedule& schedule, const Ledger& ledger) {
  std::vector<int> largest;
  for (const auto& stage_delays : delays_of(schedule, ledger)) {
    largest.push_back(*std::max_element(stage_delays.begin(), stage_delays.end()));
  }
  return largest;
}

std::string to_text(const Schedule& schedule, const Ledger& ledger) {
  const auto stages = static_cast<std::size_t>(schedule.stage_count());
  std::vector<std::vector<std::string>> cells(static_cast<std::size_t>(schedule.microbatches),
                                              std::vector<std::string>(stages));
  for_each_action(schedule, [&](std::size_t r, std::size_t action_index, const Action& action) {
    if (is_computation(action.operation)) {
      auto& cell = cells[static_cast<std::size_t>(action.microbatch)][static_cast<std::size_t>(action.stage)];
      cell += fmt::format("{}{:>3} ", symbol_of(action.operation), ledger[r][action_index]);
    }
  });
  std::string text = fmt::format("{:<12}", "micro-batch");
  for (std::size_t s = 0; s < stages; ++s) {
    text += fmt::format("  {:<11}", fmt::format("stage {}", s));
  }
  for (std::size_t i = 0; i < cells.size(); ++i) {
    text += fmt::format("\n{:>11} ", i);
    for (const std::string& cell : cells[i]) {
      text += fmt::format("  {:<11}", cell);
    }
  }
  text += "\n\nDelays: by how many updates a gradient comes too late, one column per micro-batch\n";
  const auto delays = delays_of(schedule, ledger);
  for (std::size_t s = 0; s < stages; ++s) {
    text += fmt::format("stage {:<5} ", s);
    for (const int delay : delays[s]) {
      text += fmt::format("{:>3}", delay);
    }
    text += "\n";
  }
  return text;
}

std::string to_csv(const Schedule& schedule, const Ledger& ledger) {
  std::string csv = "rank,action,version\n";
  for_each_action(schedule, [&](std::size_t r, std::size_t action_index, const Action& action) {
    if (ledger[r][action_index] != kNoVersion) {
      fmt::format_to(std::back_inserter(csv), "{},{},{}\n", r, to_string(action), ledger[r][action_index]);
    }
  });
  return csv;
}

}  // namespace stagecoach
