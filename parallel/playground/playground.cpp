#include "parallel/playground/playground.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/throw_if.h"
#include "parallel/schedule/bottleneck.h"
#include "parallel/schedule/check.h"
#include "parallel/schedule/dependency_replay.h"
#include "parallel/schedule/ledger.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/nearest_legal.h"
#include "parallel/schedule/pipedream.h"
#include "parallel/schedule/schedule_kinds.h"
#include "parallel/schedule/simulate.h"
#include "parallel/schedule/text.h"
#include "parallel/schedule/traffic.h"

namespace stagecoach {
namespace {

constexpr double kNever = std::numeric_limits<double>::quiet_NaN();

struct Playground {
  std::string kind;  // of the generator; empty for other schedules
  ScheduleSizes sizes;
  Versions versions = Versions::stash;
  Schedule computations;  // or a table that lists messages already
  Schedule lowered;
  LowerOptions options;
  std::vector<double> cost_values;  // see playground_costs
  Costs costs;

  std::string text;
  std::vector<std::int32_t> rank_begin, actions, ranks, traffic;
  std::vector<double> times, rank_times, figures, explanation;
};

Playground& playground() {
  static Playground only;
  return only;
}

/// Calls `body`; returns its result, or 0 if it throws.
template <class Body>
int guarded(const Body& body) {
  try {
    return body(playground());
  } catch (const std::exception& error) {
    playground().text = error.what();
    return 0;
  }
}

int set_schedule(Playground& p, Schedule schedule) {
  p.computations = std::move(schedule);
  const auto stages = static_cast<std::size_t>(p.computations.stage_count());
  p.cost_values.assign(6 * stages - 2 + p.computations.ranks.size(), 0);
  return 1;
}

Costs costs_from(const Schedule& schedule, const std::vector<double>& values, bool recompute) {
  auto next = values.begin();
  const auto take = [&](std::ptrdiff_t count) {
    next += count;
    return std::vector<double>(next - count, next);
  };
  const std::ptrdiff_t stages = schedule.stage_count();
  const Costs costs{.forward = take(stages),
                    .backward = take(stages),
                    .backward_input = take(stages),
                    .backward_weight = take(stages),
                    .message = take(stages - 1),
                    .transfer = take(stages - 1),
                    .update = take(std::ssize(schedule.ranks))};
  return recompute ? with_recompute(costs) : costs;
}

/// Returns whether `schedule` lists only the computations of a step, and every stage is on a rank.
bool is_plain(const Schedule& schedule) {
  const auto& ranks = schedule.stage_to_rank;
  return !schedule.is_lowered && schedule.batch == 0 &&
         std::none_of(ranks.begin(), ranks.end(), [](int rank) { return rank < 0; });
}

/// Returns whether a schedule with `problems` can be run up to the moment when no rank can continue.
bool is_replayable(const Schedule& schedule, const std::vector<std::string>& problems) {
  return problems.empty() || (problems.size() == 1 && problems[0].starts_with("deadlock")) || is_plain(schedule);
}

Schedule lowered(const Schedule& computations, const LowerOptions& options) {
  if (computations.is_lowered) {
    Schedule schedule = computations;
    schedule.sends_wait = options.sends_wait;
    return schedule;
  }
  try {
    return lower(computations, options);
  } catch (const Error&) {  // with sends that wait, where the computations alone cannot run
    return lower(computations, {.receives = options.receives});
  }
}

bool is_whole(const Schedule& part, const Schedule& schedule) {
  return std::equal(part.ranks.begin(), part.ranks.end(), schedule.ranks.begin(),
                    [](const auto& some, const auto& all) { return some.size() == all.size(); });
}

/// Sets the actions, and what each rank is stuck at; returns the part of the schedule that runs.
Schedule replayed(Playground& p) {
  const Schedule& schedule = p.lowered;
  DependencyReplay replay(schedule);
  replay.run([](int, const Action&) {});
  Schedule part = schedule;
  for (int rank = 0; rank < schedule.rank_count(); ++rank) {
    part.ranks[static_cast<std::size_t>(rank)].resize(replay.next(rank));
  }
  const Ledger ledger = schedule.batch > 0 && is_whole(part, schedule) ? make_ledger(schedule, p.versions) : Ledger{};
  const std::vector<int> versions =
      ledger.empty() ? std::vector<int>(schedule.ranks.size(), 1) : peak_versions(schedule, ledger);
  const std::vector<int> delays =
      ledger.empty() ? std::vector<int>(schedule.ranks.size(), 0) : largest_delays(schedule, ledger);
  const std::vector<int> activations = peak_activations(part);
  p.rank_begin = {0};
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    const auto& actions = schedule.ranks[rank];
    for (std::size_t i = 0; i < actions.size(); ++i) {
      const auto& [operation, stage, microbatch] = actions[i];
      p.actions.insert(p.actions.end(), {static_cast<std::int32_t>(operation), stage, microbatch,
                                         ledger.empty() ? kNoVersion : ledger[rank][i]});
    }
    p.ranks.insert(p.ranks.end(), {activations[rank], versions[rank], delays[rank]});
    const bool is_stuck = part.ranks[rank].size() < actions.size();
    const auto missing = is_stuck ? replay.missing(actions[part.ranks[rank].size()]) : std::nullopt;
    const auto place = static_cast<std::int32_t>(p.rank_begin.back() + part.ranks[rank].size());
    p.ranks.insert(p.ranks.end(), {is_stuck ? place : -1, missing ? static_cast<std::int32_t>(missing->operation) : -1,
                                   missing ? missing->stage : -1, missing ? missing->microbatch : -1});
    p.rank_begin.push_back(static_cast<std::int32_t>(p.actions.size() / 4));
  }
  return part;
}

/// Sets the times. Those of actions that never run are NaN; so is the arrival of a message that is never sent.
void set_times(Playground& p, const Schedule& part) {
  const Simulation simulation = simulate(part, p.costs);
  MessageGrid<char> is_sent(part);
  for_each_action(part, [&](std::size_t, std::size_t, const Action& action) {
    if (is_send(action.operation)) {
      is_sent.at(receive_of(action)) = 1;
    }
  });
  p.times.assign(p.actions.size() / 4 * 3, kNever);
  for_each_action(part, [&](std::size_t rank, std::size_t i, const Action& action) {
    const auto& [start, end, arrival] = simulation.timeline[rank][i];
    double* const times = &p.times[3 * (static_cast<std::size_t>(p.rank_begin[rank]) + i)];
    times[0] = start;
    times[1] = end;
    times[2] = is_receive(action.operation) && is_sent.at(action) == 1 ? arrival : kNever;
  });
  for (std::size_t rank = 0; rank < part.ranks.size(); ++rank) {
    p.rank_times.insert(p.rank_times.end(), {simulation.ends[rank], simulation.busy[rank], simulation.span[rank]});
  }
  p.figures = {simulation.seconds, simulation.idle, simulation.idle_in_span};
}

int simulated(Playground& p, bool recompute) {
  for (auto* array : {&p.rank_begin, &p.actions, &p.ranks, &p.traffic}) {
    array->clear();
  }
  for (auto* array : {&p.times, &p.rank_times, &p.figures, &p.explanation}) {
    array->clear();
  }
  std::vector<std::string> problems = check(p.computations);
  p.text = fmt::format("{}", fmt::join(problems, "\n"));
  if (!is_replayable(p.computations, problems)) {
    return 0;
  }
  p.lowered = lowered(p.computations, p.options);
  p.costs = costs_from(p.lowered, p.cost_values, recompute);
  const Schedule part = replayed(p);
  set_times(p, part);
  if (problems.empty() && !is_whole(part, p.lowered)) {  // its sends wait, and what lower() adds is legal otherwise
    problems = check(p.lowered);
    p.text = fmt::format("{}", fmt::join(problems, "\n"));
  }
  return problems.empty() ? 2 : 1;
}

std::string kinds_as_text() {
  std::string text;
  for (const ScheduleKind& kind : schedule_kinds()) {
    text += fmt::format("{}\t{}\t{}\t{}\t{:d}\t{:d}\n", kind.name, kind.summary, kind.min_chunks, kind.max_chunks,
                        kind.takes_group, kind.sends_wait);
  }
  return text;
}

struct ArrayView {
  const void* data;
  std::size_t size;
};

ArrayView array_of(const Playground& p, int which) {
  const auto view = [](const auto& values) { return ArrayView{values.data(), values.size()}; };
  switch (which) {
    case PLAYGROUND_RANK_BEGIN:
      return view(p.rank_begin);
    case PLAYGROUND_ACTIONS:
      return view(p.actions);
    case PLAYGROUND_TIMES:
      return view(p.times);
    case PLAYGROUND_RANKS:
      return view(p.ranks);
    case PLAYGROUND_RANK_TIMES:
      return view(p.rank_times);
    case PLAYGROUND_FIGURES:
      return view(p.figures);
    case PLAYGROUND_STAGE_TO_RANK:
      return view(p.computations.stage_to_rank);
    case PLAYGROUND_EXPLANATION:
      return view(p.explanation);
    default:
      return view(p.traffic);
  }
}

}  // namespace
}  // namespace stagecoach

using namespace stagecoach;

int playground_make(const char* kind, int ranks, int microbatches, int chunks, int group) {
  return guarded([&](Playground& p) {
    Schedule schedule = make_schedule(kind, ranks, microbatches, chunks, group);
    p.kind = kind;
    p.sizes = {ranks, microbatches, chunks, group};
    return set_schedule(p, std::move(schedule));
  });
}

int playground_make_pipedream(int ranks, int microbatches, int batch, int versions) {
  return guarded([&](Playground& p) {
    const std::vector<int> replicas(static_cast<std::size_t>(ranks), 1);
    p.versions = static_cast<Versions>(versions);
    p.kind.clear();
    return set_schedule(p, pipedream_schedule(replicas, microbatches, batch, p.versions));
  });
}

int playground_read(const char* table) {
  return guarded([&](Playground& p) {
    p.kind.clear();
    return set_schedule(p, schedule_from_text(table, "table"));
  });
}

int playground_repair() {
  return guarded([](Playground& p) {
    const Schedule computations = computations_of(p.computations);
    throw_if<UsageError>(!is_plain(computations),
                         "a schedule can be repaired if every stage is on a rank and it lists no updates");
    p.kind.clear();
    return set_schedule(p, nearest_legal(computations));
  });
}

double* playground_costs() { return playground().cost_values.data(); }

int playground_simulate(int receives, int sends_wait, int recompute) {
  return guarded([&](Playground& p) {
    p.options = {.receives = receives, .sends_wait = sends_wait != 0};
    return simulated(p, recompute != 0);
  });
}

int playground_explain() {
  return guarded([](Playground& p) {
    const SimulatedParts parts = simulated_parts(p.lowered, p.costs);
    const SteadyState steady = simulate_steady_state(p.lowered, p.costs);
    const auto bottleneck = find_bottleneck(p.lowered, p.costs);
    p.explanation = {parts.ideal,  parts.bubble,   parts.imbalance, parts.messages,
                     parts.update, steady.seconds, steady.idle};
    if (bottleneck) {
      p.explanation.insert(p.explanation.end(),
                           {static_cast<double>(bottleneck->rank), static_cast<double>(bottleneck->stage),
                            bottleneck->excess, bottleneck->speedup});
    } else {
      p.explanation.insert(p.explanation.end(), 4, -1);
    }
    const auto borders = static_cast<std::size_t>(p.lowered.stage_count() - 1);
    for (const LinkTraffic& link : link_traffic(p.lowered, std::vector<double>(borders, 1))) {
      p.traffic.insert(p.traffic.end(), {link.from, link.to, static_cast<std::int32_t>(link.messages)});
    }
    return 1;
  });
}

double playground_idle(int microbatches) {
  double idle = kNever;
  guarded([&](const Playground& p) {
    const Schedule schedule = make_schedule(p.kind, p.sizes.ranks, microbatches, p.sizes.chunks, p.sizes.group);
    idle = simulate(lower(schedule, p.options), p.costs).idle;
    return 1;
  });
  return idle;
}

const char* playground_text(int which) {
  guarded([&](Playground& p) {
    p.text = which == PLAYGROUND_TABLE     ? to_text(p.computations)
             : which == PLAYGROUND_LOWERED ? (p.lowered.batch > 0 ? to_text(p.lowered) : to_pytorch_text(p.lowered))
             : which == PLAYGROUND_KINDS   ? kinds_as_text()
                                           : p.text;
    return 1;
  });
  return playground().text.c_str();
}

const void* playground_array(int which) { return array_of(playground(), which).data; }
int playground_length(int which) { return static_cast<int>(array_of(playground(), which).size); }
