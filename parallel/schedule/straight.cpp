/// @file
/// Pipelines with one stage per rank, whose backwards are not split.

#include <algorithm>

#include "parallel/schedule/rank_actions.h"
#include "parallel/schedule/schedule_table.h"

namespace stagecoach {
namespace {

using Idle = std::optional<double>;

constexpr const char* kStraightIdleShare = "(p - 1) / (m + p - 1)";

Idle idle_of_1f1b(const ScheduleSizes& s, const PassTimes& t) { return (s.ranks - 1) * t.total(); }

/// Runs one micro-batch at a time, forward through all stages and back again: one rank works while the others wait.
Schedule naive_schedule(int p, int m) {
  return for_each_rank(empty_schedule(p, m), [&](RankActions rank, int r) {
    for (int i = 0; i < m; ++i) {
      rank.forward(r, i);
      rank.backward(r, i);
    }
  });
}

/// Runs all forwards, then all backwards in the same order, so that gradients add up as on one device. Source: Huang et
/// al., "GPipe", 2019, section 2.2.
Schedule gpipe_schedule(int p, int m) {
  return for_each_rank(empty_schedule(p, m), [&](RankActions rank, int r) {
    for (int i = 0; i < m; ++i) {
      rank.forward(r, i);
    }
    for (int i = 0; i < m; ++i) {
      rank.backward(r, i);
    }
  });
}

/// Warms up with min(p - r - 1, m) forwards, then alternates forwards and backwards. Where messages take no time it is
/// as long as GPipe, with the activations of p - r micro-batches. Source: Narayanan et al., "PipeDream", 2019, section
/// 3.2 (with a flush).
Schedule one_f_one_b_schedule(int p, int m) {
  return for_each_rank(empty_schedule(p, m), [&](RankActions rank, int r) {
    one_f_one_b_order(
        m, p - r - 1, [&](int i) { rank.forward(r, i); }, [&](int i) { rank.backward(r, i); });
  });
}

}  // namespace

ScheduleKind naive_kind() {
  return {.name = "naive",
          .summary = "one micro-batch at a time",
          .idle_share = "(p - 1) / p",
          .idle = [](const ScheduleSizes& s,
                     const PassTimes& t) { return Idle((s.ranks - 1) * s.microbatches * t.total()); },
          .peak_activations = [](const ScheduleSizes&, int) { return 1; },
          .make = [](const ScheduleSizes& s) { return naive_schedule(s.ranks, s.microbatches); }};
}

ScheduleKind gpipe_kind() {
  return {.name = "gpipe",
          .summary = "all forwards, then all backwards",
          .idle_share = kStraightIdleShare,
          .idle = idle_of_1f1b,
          .peak_activations = [](const ScheduleSizes& s, int) { return s.microbatches; },
          .make = [](const ScheduleSizes& s) { return gpipe_schedule(s.ranks, s.microbatches); }};
}

ScheduleKind one_f_one_b_kind() {
  return {.name = "1f1b",
          .summary = "backwards as early as possible",
          .idle_share = kStraightIdleShare,
          .idle = idle_of_1f1b,
          .peak_activations = [](const ScheduleSizes& s, int rank) { return std::min(s.microbatches, s.ranks - rank); },
          .make = [](const ScheduleSizes& s) { return one_f_one_b_schedule(s.ranks, s.microbatches); }};
}

}  // namespace stagecoach
