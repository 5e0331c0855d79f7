// The step of a candidate: the functions of Evaluator that simulate it.

#include <numeric>
#include <utility>

#include "parallel/advise/evaluate.h"
#include "parallel/advise/late.h"
#include "parallel/advise/stage_seconds.h"
#include "parallel/data_parallel/step_timeline.h"

namespace stagecoach {

void Evaluator::simulate_step(Evaluated& evaluated) {
  if (evaluated.candidate.is_data_parallel()) {
    simulate_buckets(evaluated);
  } else if (versions_of(evaluated.candidate.schedule)) {
    simulate_late(evaluated);
  } else {
    simulate_pipeline(evaluated);
  }
}

void Evaluator::simulate_late(Evaluated& evaluated) {
  const Candidate& candidate = evaluated.candidate;
  const Schedule& schedule = table(candidate);
  const auto stages =
      seconds_of_stages(costs(candidate), candidate, evaluated.split, std::vector<Link>(evaluated.split.size()));
  const ActionSeconds seconds = seconds_of_late_actions(schedule, *versions_of(candidate.schedule), stages);
  evaluated.seconds = seconds_per_batch(schedule, simulate(schedule, link_costs(evaluated), seconds));
  evaluated.busy.clear();
  for (const std::vector<double>& rank : seconds) {
    evaluated.busy.push_back(std::accumulate(rank.begin(), rank.end(), 0.0) / schedule.updates(0));
  }
  const double busy = std::accumulate(evaluated.busy.begin(), evaluated.busy.end(), 0.0);
  evaluated.idle = 1 - busy / static_cast<double>(evaluated.busy.size()) / evaluated.seconds;
}

void Evaluator::simulate_pipeline(Evaluated& evaluated) {
  const Schedule& schedule = table(evaluated.candidate);
  const auto stages = stages_of(evaluated);
  Costs links = link_costs(evaluated);
  links.average = reductions(evaluated);
  ActionSeconds seconds = seconds_of_actions(schedule, stages);
  const std::vector<double> tied = tied_seconds(evaluated);
  for (std::size_t r = 0; r < tied.size(); ++r) {
    seconds[r].back() += tied[r];
  }
  Simulation simulation = simulate(schedule, links, seconds);
  evaluated.seconds = simulation.seconds;
  evaluated.idle = simulation.idle + mean_exchange_seconds(schedule, stages) / simulation.seconds;
  evaluated.busy = std::move(simulation.busy);
}

void Evaluator::simulate_buckets(Evaluated& evaluated) {
  const Candidate& candidate = evaluated.candidate;
  const ModelCosts& model = costs(candidate);
  const StageSeconds all = seconds_of_stages(model, candidate, evaluated.split, {Link{}}).front();
  const int before = candidate.microbatches - 1;  // micro-batches whose backwards are not the last
  const bool is_only = before == 0;
  StepModel step;
  step.caps = {.rest = candidate.bucket_size};
  step.link = links_.among(candidate.mesh, MeshDirection::data, 0);
  step.ranks = candidate.mesh.data;
  const double backward = all.backward_input + all.backward_weight - model.scale;
  step.costs.forward = model.scale + (before + 1) * all.forward + before * backward +
                       (is_only ? 0 : all.copy + (before - 1) * all.accumulate);
  step.costs.backward = backward + (is_only ? all.copy : all.accumulate);
  step.costs.update = all.update + all.update_once + model.tied_update;
  double begin = model.loss_backward;
  for (std::size_t i = model.layers.size(); i-- > 0;) {
    const LayerSteps& layer = model.steps[i];
    const std::vector<double>& arrivals = is_only ? layer.only_arrivals : layer.last_arrivals;
    for (std::size_t g = 0; g < layer.gradient_bytes.size(); ++g) {
      const Shape shape{layer.gradient_bytes[g] / static_cast<std::int64_t>(sizeof(float))};
      step.parameters.emplace_back("", Tensor::empty(shape, DType::float32, Device{DeviceType::meta}));
      step.costs.arrivals.push_back(begin + arrivals[g]);
    }
    begin += model.layers[i].backward(Stage::Recompute::no) + (is_only ? layer.copy : layer.accumulate);
  }
  if (candidate.mesh.data == 1) {  // one device
    evaluated.seconds = step.costs.forward + step.costs.backward + step.costs.update;
  } else {
    const Timeline timeline = timeline_of(DataParallelMode::buckets, step);
    evaluated.seconds = timeline.seconds;
    evaluated.idle = timeline.idle();
  }
  evaluated.busy = {step.costs.forward + step.costs.backward + step.costs.update};
}

}  // namespace stagecoach
