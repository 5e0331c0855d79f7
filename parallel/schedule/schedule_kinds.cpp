#include "parallel/schedule/schedule_kinds.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "parallel/schedule/generators.h"

namespace stagecoach {
namespace {

using Idle = std::optional<double>;

Idle where(bool holds, double idle) { return holds ? Idle(idle) : std::nullopt; }

double others(const ScheduleSizes& s) { return s.ranks - 1; }
/// tF + tI - tW, and what the zero bubble orders need for it: weight gradients that fit where they are put.
double without_weight(const PassTimes& t) { return t.forward + t.backward_input - t.backward_weight; }
bool weights_fit(const PassTimes& t) { return t.backward_weight <= std::min(t.forward, t.backward_input); }
bool are_equal(const PassTimes& t) { return t.forward == t.backward_input && t.forward == t.backward_weight; }

int group_of(const ScheduleSizes& s) { return s.group == 0 ? std::min(s.ranks, s.microbatches) : s.group; }
/// Activations of a V, which are those of its order for `most` / 2 micro-batches or more.
int v_peak(const ScheduleSizes& s, int rank, int most) {
  return std::min({most, 2 * s.microbatches, s.microbatches + rank + 1});
}

Idle idle_of_1f1b(const ScheduleSizes& s, const PassTimes& t) { return others(s) * t.total(); }
Idle idle_of_chunks(const ScheduleSizes& s, const PassTimes& t) {
  return where(s.microbatches >= s.ranks || s.chunks == 1, others(s) * t.total() / s.chunks);
}
int peak_of_interleaved(const ScheduleSizes& s, int rank) {
  const int warm_up = 2 * (s.ranks - rank - 1) + (s.chunks - 1) * group_of(s);
  return std::min(s.microbatches * s.chunks, s.chunks == 1 ? s.ranks - rank : warm_up + 1);
}
Schedule make_interleaved(const ScheduleSizes& s) {
  return interleaved_schedule(s.ranks, s.microbatches, s.chunks, s.group);
}

constexpr const char* kShareOf1F1B = "(p - 1) / (m + p - 1)";
constexpr const char* kShareOfChunks = "(p - 1) / (v m + p - 1)";

template <class Condition>
std::string names_where(const Condition& condition) {
  std::vector<std::string> names;
  for (const ScheduleKind& kind : schedule_kinds()) {
    if (condition(kind)) {
      names.push_back(kind.name);
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

// tests/parallel/schedule_kinds_test.cpp holds what the rows claim.
const std::vector<ScheduleKind>& schedule_kinds() {
  static const std::vector<ScheduleKind> kinds{
      {.name = "naive",
       .summary = "one micro-batch at a time",
       .idle_share = "(p - 1) / p",
       .idle = [](const ScheduleSizes& s, const PassTimes& t) { return Idle(others(s) * s.microbatches * t.total()); },
       .peak_activations = [](const ScheduleSizes&, int) { return 1; },
       .make = [](const ScheduleSizes& s) { return naive_schedule(s.ranks, s.microbatches); }},
      {.name = "gpipe",
       .summary = "all forwards, then all backwards",
       .idle_share = kShareOf1F1B,
       .idle = idle_of_1f1b,
       .peak_activations = [](const ScheduleSizes& s, int) { return s.microbatches; },
       .make = [](const ScheduleSizes& s) { return gpipe_schedule(s.ranks, s.microbatches); }},
      {.name = "1f1b",
       .summary = "backwards as early as can be",
       .idle_share = kShareOf1F1B,
       .idle = idle_of_1f1b,
       .peak_activations = [](const ScheduleSizes& s, int rank) { return std::min(s.microbatches, s.ranks - rank); },
       .make = [](const ScheduleSizes& s) { return one_f_one_b_schedule(s.ranks, s.microbatches); }},
      {.name = "interleaved",
       .summary = "1F1B over chunks; senders wait for their receivers",
       .most_chunks = kAnyChunks,
       .takes_group = true,
       .sends_wait = true,  // as in Megatron-LM and AscendSpeed
       .idle_share = kShareOfChunks,
       .idle_domain = "m >= p",
       .idle = idle_of_chunks,
       .peak_activations = peak_of_interleaved,
       .make = make_interleaved},
      {.name = "foldx_aiao",
       .summary = "looped breadth-first: chunk by chunk, all micro-batches through each",
       .most_chunks = kAnyChunks,
       .idle_share = kShareOfChunks,
       .idle_domain = "m >= p",
       .idle = idle_of_chunks,
       .peak_activations = [](const ScheduleSizes& s, int) { return s.microbatches * s.chunks; },
       .make = [](const ScheduleSizes& s) { return looped_breadth_first_schedule(s.ranks, s.microbatches, s.chunks); }},
      {.name = "foldx_fifo",
       .summary = "the order of interleaved; no sender waits",
       .most_chunks = kAnyChunks,
       .takes_group = true,
       .idle_share = kShareOfChunks,
       .idle_domain = "m >= p",
       .idle = idle_of_chunks,
       .peak_activations = peak_of_interleaved,
       .make = make_interleaved},
      {.name = "zb-h1",
       .summary = "zero bubble: 1F1B with the weight gradients apart",
       .splits_backward = true,
       .idle_share = "(p - 1) / (3 m + p - 1)",
       .idle_domain = "m >= p",
       .idle =
           [](const ScheduleSizes& s, const PassTimes& t) {
             return where(s.microbatches >= s.ranks && weights_fit(t), others(s) * without_weight(t));
           },
       .peak_activations = [](const ScheduleSizes& s, int) { return std::min(s.microbatches, s.ranks); },
       .make = [](const ScheduleSizes& s) { return zero_bubble_h1_schedule(s.ranks, s.microbatches); }},
      // Within a rank's first and last action the idle time is (p - 1) (tF + tI - 2 tW), as the paper has it. A step
      // alone is also as long as rank p - 1 begins late.
      {.name = "zb-h2",
       .summary = "zb-h1 with twice the warm-up and memory: no idle time between steps",
       .splits_backward = true,
       .idle_share = "(p - 1) / (3 m + p - 1)",
       .idle_domain = "m >= 2 p - 1",
       .idle =
           [](const ScheduleSizes& s, const PassTimes& t) {
             return where(s.microbatches >= 2 * s.ranks - 1 && weights_fit(t),
                          others(s) * std::max(t.forward, without_weight(t) - t.backward_weight));
           },
       .peak_activations = [](const ScheduleSizes& s, int) { return std::min(s.microbatches, 2 * s.ranks - 1); },
       .make = [](const ScheduleSizes& s) { return zero_bubble_h2_schedule(s.ranks, s.microbatches); }},
      {.name = "interleaved-zb",
       .summary = "zb-h1 over chunks",
       .most_chunks = kAnyChunks,
       .takes_group = true,
       .splits_backward = true,
       .idle_share = "(p - 1) / (3 v m + p - 1)",
       .idle_domain = "m >= p",
       .idle =
           [](const ScheduleSizes& s, const PassTimes& t) {
             return where(s.microbatches >= s.ranks && weights_fit(t), others(s) * without_weight(t) / s.chunks);
           },
       .peak_activations =
           [](const ScheduleSizes& s, int) {
             return std::min(s.microbatches * s.chunks, (s.chunks - 1) * group_of(s) + s.ranks);
           },
       .make =
           [](const ScheduleSizes& s) {
             return interleaved_zero_bubble_schedule(s.ranks, s.microbatches, s.chunks, s.group);
           }},
      {.name = "zbv",
       .summary = "zero bubble in a V: no idle time between steps, with the memory of 1F1B",
       .least_chunks = 2,
       .most_chunks = 2,
       .splits_backward = true,
       .is_v_shaped = true,
       .idle_share = "(p - 1) / (6 m + p - 1)",
       .idle_domain = "m >= 2 p - 1",
       .idle =
           [](const ScheduleSizes& s, const PassTimes& t) {
             return where(s.microbatches >= 2 * s.ranks - 1 && are_equal(t), others(s) * t.forward / 2);
           },
       .peak_activations = [](const ScheduleSizes& s, int rank) { return v_peak(s, rank, 2 * s.ranks); },
       .make = [](const ScheduleSizes& s) { return zero_bubble_v_schedule(s.ranks, s.microbatches); }},
      // The published (p - 1) (F&B + B - 3 W) counts an overlapped pair as one action, which waits for both its inputs.
      // One after the other, the forward need not wait for what the backward does.
      {.name = "dualpipev",
       .summary = "DualPipe in a V: a forward of one arm beside a backward of the other",
       .least_chunks = 2,
       .most_chunks = 2,
       .splits_backward = true,
       .is_v_shaped = true,
       .idle_share = "(p - 1) / (6 m + p - 1)",
       .idle_domain = "m >= 2 p",
       .idle =
           [](const ScheduleSizes& s, const PassTimes& t) {
             return where(s.microbatches >= 2 * s.ranks && are_equal(t), others(s) * t.forward / 2);
           },
       .peak_activations = [](const ScheduleSizes& s, int rank) { return v_peak(s, rank, 2 * s.ranks + 1); },
       .make = [](const ScheduleSizes& s) { return dualpipe_v_schedule(s.ranks, s.microbatches); }},
  };
  return kinds;
}

const ScheduleKind* find_schedule(const std::string& name) {
  const auto& kinds = schedule_kinds();
  const auto found = std::find_if(kinds.begin(), kinds.end(), [&](const auto& kind) { return kind.name == name; });
  return found == kinds.end() ? nullptr : &*found;
}

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const ScheduleKind& kind : schedule_kinds()) {
      all.push_back(kind.name);
    }
    return all;
  }();
  return names;
}

Schedule make_schedule(const std::string& name, int p, int m, int v, int group) {
  const ScheduleKind* kind = find_schedule(name);
  if (kind == nullptr) {
    throw UsageError(fmt::format("unknown schedule '{}'; known are {}", name, fmt::join(schedule_names(), ", ")));
  }
  const int chunks = v == 0 ? kind->least_chunks : v;
  if (!kind->takes_chunks() && chunks != kind->least_chunks) {
    throw UsageError(fmt::format("{} has {} per rank: expected {} chunk(s), got {}; other numbers of chunks are for {}",
                                 name, kind->is_v_shaped ? "two stages (one on each arm of its V)" : "one stage",
                                 kind->least_chunks, v, names_where([](const auto& k) { return k.takes_chunks(); })));
  }
  if (group != 0 && !kind->takes_group) {
    throw UsageError(fmt::format("{} has no groups; they are for {}", name,
                                 names_where([](const auto& k) { return k.takes_group; })));
  }
  return kind->make({p, m, chunks, group});
}

std::optional<IdleFormula> idle_formula(const std::string& schedule, int p, int m, int v) {
  const ScheduleKind* kind = find_schedule(schedule);
  if (kind == nullptr) {
    return std::nullopt;
  }
  IdleFormula formula{kind->idle_share, std::nullopt, kind->idle_domain};
  const PassTimes times;
  if (const auto idle = kind->idle({p, m, v}, times)) {
    formula.share = *idle / (m * times.total() + *idle);
  }
  return formula;
}

}  // namespace stagecoach
