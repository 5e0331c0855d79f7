#include "parallel/schedule/bottleneck.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace stagecoach {
namespace {

double sum(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

/// Returns each stage's share of all work if the work is divided equally among the ranks, and the work of a rank
/// equally among its stages. A stage on n ranks has the sum of n shares, as each micro-batch goes to one of them.
std::vector<double> equal_shares(const Schedule& schedule) {
  std::vector<double> shares(static_cast<std::size_t>(schedule.stage_count()));
  for (int rank = 0; rank < schedule.rank_count(); ++rank) {
    const std::vector<int> stages = schedule.stages_of(rank);
    for (const int stage : stages) {
      shares[static_cast<std::size_t>(stage)] += 1 / static_cast<double>(stages.size() * schedule.ranks.size());
    }
  }
  return shares;
}

int slowest_stage(const Schedule& schedule, const Costs& costs, std::size_t rank) {
  std::vector<double> seconds(static_cast<std::size_t>(schedule.stage_count()));
  for (const Action& action : schedule.ranks[rank]) {
    seconds[static_cast<std::size_t>(action.stage)] += costs.of(action, rank);
  }
  return static_cast<int>(std::max_element(seconds.begin(), seconds.end()) - seconds.begin());
}

Costs without_update(Costs costs) {
  costs.update.clear();
  std::erase_if(costs.after, [](const auto& work) { return work.first.first == Operation::update; });
  return costs;
}

}  // namespace

Costs balanced(const Schedule& schedule, Costs costs) {
  const std::vector<double> shares = equal_shares(schedule);
  for (auto* seconds : {&costs.forward, &costs.backward, &costs.backward_input, &costs.backward_weight}) {
    const double all = sum(*seconds);
    for (std::size_t s = 0; s < shares.size(); ++s) {
      (*seconds)[s] = all * shares[s];
    }
  }
  for (auto* seconds : {&costs.update, &costs.norm_work}) {
    if (!seconds->empty()) {
      seconds->assign(seconds->size(), sum(*seconds) / static_cast<double>(seconds->size()));
    }
  }
  return costs;
}

Costs without_messages(Costs costs) {
  costs.message.assign(costs.message.size(), 0);
  costs.transfer.clear();
  costs.other_pipelines.clear();
  return costs;
}

Costs without_reductions(Costs costs) {
  costs.average.clear();
  costs.norm_exchange.clear();
  costs.norm_sum = 0;
  return costs;
}

SimulatedParts simulated_parts(const Schedule& schedule, const Costs& costs) {
  const Costs computations_and_messages = without_update(costs);
  const Costs computations = without_reductions(without_messages(computations_and_messages));
  const Simulation unequal = simulate(schedule, computations);
  const double ideal = sum(unequal.busy) / static_cast<double>(unequal.busy.size());
  const double equal = simulate(schedule, balanced(schedule, computations)).seconds;
  const double with_messages = simulate(schedule, computations_and_messages).seconds;
  return {.ideal = ideal,
          .bubble = equal - ideal,
          .imbalance = unequal.seconds - equal,
          .messages = with_messages - unequal.seconds,
          .update = simulate(schedule, costs).seconds - with_messages};
}

std::optional<StageBottleneck> find_bottleneck(const Schedule& schedule, const Costs& costs) {
  const Simulation simulation = simulate(schedule, costs);
  const auto busiest = std::max_element(simulation.busy.begin(), simulation.busy.end());
  const double mean = sum(simulation.busy) / static_cast<double>(simulation.busy.size());
  constexpr double kEqual = 1 + 1e-6;
  if (*busiest <= kEqual * mean) {
    return std::nullopt;
  }
  const auto rank = static_cast<std::size_t>(busiest - simulation.busy.begin());
  return StageBottleneck{.rank = static_cast<int>(rank),
                         .stage = slowest_stage(schedule, costs, rank),
                         .busy = *busiest,
                         .excess = *busiest / mean,
                         .speedup = simulation.seconds / simulate(schedule, balanced(schedule, costs)).seconds};
}

}  // namespace stagecoach
