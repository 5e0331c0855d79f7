#include "parallel/advise/stage_seconds.h"

#include <algorithm>

#include "parallel/advise/late.h"

namespace stagecoach {
namespace {

void add_layer(const ModelCosts& costs, std::size_t layer, const Candidate& candidate, const Link& link,
               StageSeconds& stage) {
  const LayerProfile& profile = costs.layers[layer];
  const LayerSteps& steps = costs.steps[layer];
  stage.forward += profile.forward;
  stage.backward_input += profile.backward_input + (candidate.recompute ? profile.forward : 0);
  stage.backward_weight += profile.backward_weight;
  stage.accumulate += steps.accumulate;
  stage.copy += candidate.mesh.data > 1 ? steps.copy : 0;
  stage.update += steps.update;
  stage.clone += steps.clone;
  if (costs.exchanges.empty()) {
    return;
  }
  for (const Exchange& exchange : costs.exchanges[layer]) {
    const double ring = ring_seconds(exchange, link, candidate.mesh.tensor);
    stage.exchange_forward += exchange.forward * ring;
    stage.exchange_backward += (exchange.backward + (candidate.recompute ? exchange.forward : 0)) * ring;
  }
}

}  // namespace

std::vector<StageSeconds> seconds_of_stages(const ModelCosts& costs, const Candidate& candidate, const Split& split,
                                            const std::vector<Link>& tensor_links) {
  std::vector<StageSeconds> stages(split.size());
  std::size_t layer = 0;
  for (std::size_t s = 0; s < split.size(); ++s) {
    stages[s].backward_input += costs.steps[layer].begins_stage;
    for (int i = 0; i < split[s]; ++i) {
      add_layer(costs, layer++, candidate, tensor_links[s], stages[s]);
    }
  }
  stages.front().forward += costs.input;
  stages.back().forward += costs.loss + costs.sums;
  stages.back().backward_input += costs.scale + costs.loss_backward + (candidate.recompute ? costs.loss : 0);
  for (StageSeconds& stage : stages) {
    stage.update_once = costs.update;
    stage.forward += stage.exchange_forward;
    stage.backward_input += stage.exchange_backward;
  }
  return stages;
}

double seconds_of(Operation operation, const StageSeconds& stage, bool is_first) {
  const double weight = stage.backward_weight + (is_first ? stage.copy : stage.accumulate);
  switch (operation) {
    case Operation::forward:
      return stage.forward;
    case Operation::backward_input:
      return stage.backward_input;
    case Operation::backward_weight:
      return weight;
    case Operation::backward:
      return stage.backward_input + weight;
    default:
      return 0;
  }
}

ActionSeconds seconds_of_actions(const Schedule& schedule, const std::vector<StageSeconds>& stages) {
  ActionSeconds all(schedule.ranks.size());
  std::vector<bool> has_gradients(stages.size());
  for_each_action(schedule, [&](std::size_t rank, std::size_t, const Action& action) {
    if (!is_message(action.operation)) {
      const auto s = static_cast<std::size_t>(action.stage);
      all[rank].push_back(seconds_of(action.operation, stages[s], !has_gradients[s]));
      has_gradients[s] = has_gradients[s] || gives_weight_gradient(action.operation);
    }
  });
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    double update = stages.front().update_once;
    for (const int s : schedule.stages_of(static_cast<int>(rank))) {
      update += stages[static_cast<std::size_t>(s)].update;
    }
    all[rank].push_back(update);
  }
  return all;
}

double mean_exchange_seconds(const Schedule& schedule, const std::vector<StageSeconds>& stages) {
  double sum = 0;
  for (const StageSeconds& stage : stages) {
    sum += stage.exchange_forward + stage.exchange_backward;
  }
  return schedule.microbatches * sum / static_cast<double>(schedule.ranks.size());
}

double least_seconds(const ModelCosts& costs, const Candidate& candidate) {
  const Split all{static_cast<int>(costs.layers.size())};
  const StageSeconds model = seconds_of_stages(costs, candidate, all, {Link{}}).front();
  const double forward_and_input = model.forward + model.backward_input;
  const double rounding = 1 - 1e-9;
  const double shared =
      (candidate.microbatches * (forward_and_input + model.backward_weight) + model.update) / candidate.mesh.pipeline;
  const bool drains = !versions_of(candidate.schedule);  // otherwise the next batch is begun before
  return rounding * (drains ? std::max(shared, forward_and_input) : shared);
}

}  // namespace stagecoach
