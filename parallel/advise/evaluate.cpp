#include "parallel/advise/evaluate.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

#include "core/base/throw_if.h"
#include "parallel/advise/late.h"
#include "parallel/advise/quick_split.h"
#include "parallel/advise/stage_seconds.h"
#include "parallel/advise/step_bound.h"
#include "parallel/comm/link_direction.h"
#include "parallel/data_parallel/buckets.h"
#include "parallel/pipeline/fastest_split.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/schedule_kinds.h"
#include "parallel/schedule/traffic.h"

namespace stagecoach {
namespace {

using LayerIterator = std::vector<LayerSteps>::const_iterator;

constexpr double kFloat = sizeof(float);
// The sizes of buckets that are tried beside 25 MiB, and by which share of the step they must make it faster.
constexpr std::size_t kBucketSizes[] = {50 << 20, 100 << 20, 200 << 20, 400 << 20, 800 << 20};
constexpr double kBucketGain = 0.001;
constexpr std::size_t kMaxMovedActions = 1'000'000;  // of all steps that are simulated to move a plan's layers

std::int64_t samples_of(const AdviceRequest& request, const Candidate& candidate) {
  return request.batch_size / candidate.mesh.data / candidate.microbatches;
}

/// Returns the bytes of the messages between stages: [stages - 1].
std::vector<double> message_bytes(const ModelCosts& costs, const Split& split) {
  std::vector<double> bytes;
  std::size_t layer = 0;
  for (std::size_t s = 0; s + 1 < split.size(); ++s) {
    layer += static_cast<std::size_t>(split[s]);
    bytes.push_back(static_cast<double>(costs.layers[layer - 1].output_bytes));
  }
  return bytes;
}

/// Returns the seconds by which stages are balanced.
std::vector<double> balanced_seconds(const ModelCosts& costs, bool recompute) {
  std::vector<double> seconds =
      seconds_of_layers(costs.layers, recompute ? Stage::Recompute::yes : Stage::Recompute::no);
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    seconds[i] += costs.steps[i].accumulate;
  }
  seconds.front() += costs.input;
  seconds.back() += costs.loss + costs.sums + costs.loss_backward;
  return seconds;
}

/// Returns which rank of a pipeline holds which stage.
Placement placement_of(const Candidate& candidate) {
  const int ranks = candidate.mesh.pipeline;
  return versions_of(candidate.schedule) ? round_robin_placement(ranks, ranks)
                                         : placement_of(*find_schedule(candidate.schedule), ranks, candidate.chunks);
}

/// Returns whether tied weights are on two ranks, which then meet in each update.
bool has_tied_ranks(const ModelCosts& costs, const Placement& placement) {
  return costs.tied_bytes > 0 && placement.stage_to_rank.front() != placement.stage_to_rank.back();
}

/// Returns the bytes of the gradients of some layers, in the order in which they arrive.
std::vector<std::int64_t> gradient_bytes(LayerIterator begin, LayerIterator end) {
  std::vector<std::int64_t> bytes;
  while (end != begin) {
    const std::vector<std::int64_t>& layer = (--end)->gradient_bytes;
    bytes.insert(bytes.end(), layer.begin(), layer.end());
  }
  return bytes;
}

/// Returns the bytes over the busiest link of a pipeline, in a step.
double pipeline_bytes(const ModelCosts& costs, const Schedule& schedule, const std::vector<double>& message_bytes) {
  const std::pair ends{schedule.stage_to_rank.front(), schedule.stage_to_rank.back()};
  const double tied = has_tied_ranks(costs, schedule) ? costs.tied_bytes : 0;
  double most = tied;
  for (const LinkTraffic& link : link_traffic(schedule, message_bytes)) {
    const bool is_tied = std::minmax(link.from, link.to) == std::minmax(ends.first, ends.second);
    most = std::max(most, link.bytes + (is_tied ? tied : 0));
  }
  return most;
}

/// Returns the bytes that a rank sends to the next one in the rings of its tensor and data-parallel groups, in a step:
/// the most of all stages and both groups.
double ring_bytes(const ModelCosts& costs, const Evaluated& evaluated) {
  const auto& [data, pipeline, tensor, shards] = evaluated.candidate.mesh;
  const std::vector<double> weights = weight_bytes_of_stages(costs.layers, evaluated.split);
  double most = 0;
  std::size_t layer = 0;
  for (std::size_t s = 0; s < evaluated.split.size(); ++s) {
    double exchanged = 0;
    for (int i = 0; i < evaluated.split[s]; ++i, ++layer) {
      for (const Exchange& exchange : costs.exchanges.empty() ? std::vector<Exchange>{} : costs.exchanges[layer]) {
        exchanged += (exchange.forward + exchange.backward) * static_cast<double>(exchange.numel) * kFloat;
      }
    }
    most = std::max({most, evaluated.candidate.microbatches * exchanged * (tensor - 1) / tensor,
                     2.0 * (data - 1) / data * weights[s]});
  }
  return most;
}

}  // namespace

const RankMemory& Evaluated::worst() const {
  return *std::max_element(memory.begin(), memory.end(),
                           [](const RankMemory& a, const RankMemory& b) { return a.total() < b.total(); });
}

const ModelCosts& Evaluator::costs(const Candidate& candidate) {
  const std::pair key{samples_of(request_, candidate), candidate.mesh.tensor};
  if (const auto found = costs_.find(key); found != costs_.end()) {
    return found->second;
  }
  if (const auto found = costs_error_.find(key); found != costs_error_.end()) {
    throw UsageError(found->second);
  }
  try {
    return costs_[key] = request_.costs(key.first, key.second);
  } catch (const UsageError& error) {
    costs_error_[key] = error.what();
    throw;
  }
}

const Schedule& Evaluator::table(const Candidate& candidate) {
  const int ranks = candidate.mesh.pipeline;
  const Sizes sizes{candidate.schedule, ranks, candidate.microbatches, candidate.chunks};
  if (const auto found = tables_.find(sizes); found != tables_.end()) {
    return found->second;
  }
  if (const auto versions = versions_of(candidate.schedule)) {
    throw_if<UsageError>(costs(candidate).tied_bytes > 0, "no late gradients are planned where weights are tied");
    return tables_[sizes] = late_schedule(*versions, ranks, candidate.microbatches);
  }
  const ScheduleKind& kind = *find_schedule(candidate.schedule);
  const Schedule table = make_schedule(kind.name, ranks, candidate.microbatches, candidate.chunks);
  Schedule schedule = with_reductions(lower(table, {.sends_wait = kind.sends_wait}));
  if (has_tied_ranks(costs(candidate), schedule)) {
    schedule.rendezvous = {schedule.stage_to_rank.front(), schedule.stage_to_rank.back()};
  }
  return tables_[sizes] = std::move(schedule);
}

Split Evaluator::split_of(const Candidate& candidate) {
  const Placement placement = placement_of(candidate);
  const auto layers = static_cast<int>(costs(candidate).layers.size());
  const Split equal = split_by_layers(layers, placement.stage_count());
  if (candidate.balanced == Balanced::layers) {
    return equal;
  }
  const bool has_one = has_one_stage_per_rank(placement);  // then neither the schedule nor the micro-batches matter
  const Sizes sizes{has_one ? "" : candidate.schedule, candidate.mesh.pipeline, has_one ? 1 : candidate.microbatches,
                    candidate.chunks};
  const std::tuple key{sizes, samples_of(request_, candidate), candidate.mesh.tensor, candidate.recompute};
  if (const auto found = splits_.find(key); found != splits_.end()) {
    return found->second;
  }
  return splits_[key] =
             quick_split(balanced_seconds(costs(candidate), candidate.recompute), placement, candidate.microbatches);
}

std::vector<Link> Evaluator::group_links(const Evaluated& evaluated, MeshDirection direction) {
  std::vector<Link> links;
  for (const int rank : placement_of(evaluated.candidate).stage_to_rank) {
    links.push_back(links_.among(evaluated.candidate.mesh, direction, rank));
  }
  return links;
}

double Evaluator::least_seconds(const Candidate& candidate) {
  Evaluated evaluated{.candidate = candidate, .split = split_of(candidate)};
  evaluated.candidate.bucket_size = request_.bucket_size.value_or(*std::rbegin(kBucketSizes));
  return std::max(stagecoach::least_seconds(costs(candidate), candidate), least_seconds(evaluated));
}

double Evaluator::least_seconds(const Evaluated& evaluated) {
  const Candidate& candidate = evaluated.candidate;
  if (candidate.is_data_parallel() || versions_of(candidate.schedule)) {
    return 0;
  }
  const std::vector<int> ranks = placement_of(candidate).stage_to_rank;
  const auto stages = stages_of(evaluated);
  StepRest rest{.messages = link_costs(evaluated).message,
                .reductions = reductions(evaluated, {}),
                .updates = tied_seconds(evaluated)};
  for (std::size_t s = 0; s < stages.size(); ++s) {
    rest.updates[static_cast<std::size_t>(ranks[s])] += stages[s].update;
    if (s > 0 && ranks[s] == ranks[s - 1]) {
      rest.messages[s - 1] = 0;
    }
  }
  for (double& update : rest.updates) {
    update += stages.front().update_once;
  }
  return least_step_seconds(*find_schedule(candidate.schedule),
                            {candidate.mesh.pipeline, candidate.microbatches, candidate.chunks}, stages, rest);
}

Evaluated Evaluator::memory(const Candidate& candidate) { return memory(candidate, split_of(candidate)); }

Evaluated Evaluator::memory(const Candidate& candidate, Split split) {
  const ModelCosts& model = costs(candidate);
  const Schedule& schedule = table(candidate);
  Evaluated evaluated{.candidate = candidate, .split = std::move(split)};
  const std::vector<double> bytes = message_bytes(model, evaluated.split);
  evaluated.memory =
      memory_of_ranks(model, candidate, evaluated.split, schedule, bytes, request_.optimizer_bytes_per_weight_byte);
  evaluated.link_bytes = std::max(ring_bytes(model, evaluated), pipeline_bytes(model, schedule, bytes));
  if (const auto versions = versions_of(candidate.schedule)) {
    evaluated.memory = with_versions(std::move(evaluated.memory), schedule, *versions,
                                     weight_bytes_of_stages(model.layers, evaluated.split));
    evaluated.staleness = staleness_of(schedule, *versions);
    evaluated.link_bytes /= schedule.updates(0);
  }
  return evaluated;
}

void Evaluator::add_times(Evaluated& evaluated, double worth) {
  simulate_step(evaluated);
  if (evaluated.candidate.mesh.data > 1 && !request_.bucket_size) {
    enlarge_buckets(evaluated, worth);
  }
}

void Evaluator::enlarge_buckets(Evaluated& evaluated, double worth) {
  Evaluated other = evaluated;
  const auto reductions_with = [&](std::size_t size) {
    other.candidate.bucket_size = size;
    return reductions(other);
  };
  const auto sum = [](const std::vector<double>& seconds) {
    return std::accumulate(seconds.begin(), seconds.end(), 0.0);
  };
  std::vector<std::size_t> sizes(std::begin(kBucketSizes), std::end(kBucketSizes));
  if (!evaluated.candidate.is_data_parallel()) {  // a stage's are reduced after its backwards: the fewest are the best
    const std::vector<double> least = reductions_with(sizes.back());
    const double saved = sum(reductions(evaluated)) - sum(least);  // at most
    if (saved <= kBucketGain * evaluated.seconds || evaluated.seconds - saved > worth * (1 + 1e-9)) {
      return;
    }
    sizes = {
        *std::find_if(sizes.begin(), sizes.end(), [&](std::size_t size) { return reductions_with(size) == least; })};
  }
  Evaluated best = evaluated;
  for (const std::size_t size : sizes) {
    other.candidate.bucket_size = size;
    simulate_step(other);
    best = other.seconds < best.seconds ? other : best;
  }
  if (best.seconds < (1 - kBucketGain) * evaluated.seconds) {
    evaluated = std::move(best);
  }
}

void Evaluator::move_layers(Evaluated& evaluated) {
  if (evaluated.candidate.mesh.pipeline == 1) {
    return;
  }
  double best = evaluated.seconds;
  const auto seconds_of = [&](const Split& split) {
    Evaluated moved{.candidate = evaluated.candidate, .split = split};
    if (const double least = least_seconds(moved); least >= best) {
      return least;
    }
    simulate_step(moved);
    if (moved.seconds < best && request_.memory_limit > 0 &&
        memory(moved.candidate, split).worst().total() > request_.memory_limit) {
      return std::numeric_limits<double>::infinity();
    }
    best = std::min(best, moved.seconds);
    return moved.seconds;
  };
  std::size_t tries = kMaxMovedActions / table(evaluated.candidate).action_count();
  evaluated = memory(evaluated.candidate, faster_by_moves({best, evaluated.split}, seconds_of, tries).split);
  simulate_step(evaluated);
}

std::vector<double> Evaluator::reductions(const Evaluated& evaluated) {
  return reductions(evaluated, first_reduced(table(evaluated.candidate)));
}

std::vector<double> Evaluator::reductions(const Evaluated& evaluated, const std::set<int>& first_stages) {
  if (evaluated.candidate.mesh.data == 1) {
    return std::vector<double>(evaluated.split.size());
  }
  const std::vector<Link> links = group_links(evaluated, MeshDirection::data);
  std::vector<double> seconds;
  auto begin = costs(evaluated.candidate).steps.begin();
  for (std::size_t s = 0; s < links.size(); ++s) {
    const auto end = begin + evaluated.split[s];
    BucketCaps caps{.rest = evaluated.candidate.bucket_size};
    caps.first = first_stages.contains(static_cast<int>(s)) ? caps.first : caps.rest;
    seconds.push_back(reduction_seconds(gradient_bytes(begin, end), caps, links[s], evaluated.candidate.mesh.data));
    begin = end;
  }
  return seconds;
}

std::vector<StageSeconds> Evaluator::stages_of(const Evaluated& evaluated) {
  return seconds_of_stages(costs(evaluated.candidate), evaluated.candidate, evaluated.split,
                           group_links(evaluated, MeshDirection::tensor));
}

std::vector<double> Evaluator::tied_seconds(const Evaluated& evaluated) {
  const MeshSizes& mesh = evaluated.candidate.mesh;
  const ModelCosts& model = costs(evaluated.candidate);
  const Placement placement = placement_of(evaluated.candidate);
  const int first = placement.stage_to_rank.front();
  const int last = placement.stage_to_rank.back();
  std::vector<double> seconds(static_cast<std::size_t>(mesh.pipeline));
  if (has_tied_ranks(model, placement)) {  // the gradient comes, and the new values go back
    const double both_ways = 2 * links_.between(mesh, first, last).seconds(model.tied_bytes);
    seconds[static_cast<std::size_t>(first)] = seconds[static_cast<std::size_t>(last)] = both_ways;
  } else {
    seconds[static_cast<std::size_t>(first)] = model.tied_update;
  }
  return seconds;
}

Costs Evaluator::link_costs(const Evaluated& evaluated) {
  const std::vector<int> ranks = placement_of(evaluated.candidate).stage_to_rank;
  Costs links = Costs::uniform(static_cast<int>(ranks.size()), 0, 0, 0);
  links.message.clear();
  links.bytes = message_bytes(costs(evaluated.candidate), evaluated.split);
  links.eager_bytes = kEagerBytes;
  for (std::size_t s = 0; s < links.bytes.size(); ++s) {
    const Link link = links_.between(evaluated.candidate.mesh, ranks[s], ranks[s + 1]);
    links.message.push_back(link.seconds(links.bytes[s]));
    links.transfer.push_back(link.transfer_seconds(links.bytes[s]));
  }
  return links;
}

}  // namespace stagecoach
