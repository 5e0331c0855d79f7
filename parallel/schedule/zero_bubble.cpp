/// @file
/// Zero bubble pipelines with one stage per rank: 1F1B with separate weight gradients.

#include <algorithm>

#include "parallel/schedule/rank_actions.h"
#include "parallel/schedule/schedule_table.h"

namespace stagecoach {
namespace {

/// Generates the actions of one rank. It holds `held` activations in all: those of its warm-up, of one more forward,
/// and of the weight gradients that wait.
void run_rank(RankActions& rank, int stage, int m, int warm_up, int held) {
  zero_bubble_order(
      m, warm_up, std::max(0, held - 1 - warm_up), [&](int i) { rank.forward(stage, i); },
      [&](int i) { rank.backward_input(stage, i); }, [&](int i) { rank.backward_weight(stage, i); });
}

/// 1F1B with the weight gradients moved to where a rank would otherwise be idle. Every rank holds p activations.
/// Source: Qi et al., "Zero bubble pipeline parallelism", 2023, section 2.1 (ZB-H1).
Schedule zero_bubble_h1_schedule(int p, int m) {
  return for_each_rank(empty_schedule(p, m), [&](RankActions rank, int r) { run_rank(rank, r, m, p - r - 1, p); });
}

/// The same with twice the warm-up, which also fills the time before the first backward. With tF = tI = tW and
/// m >= 2 p - 1, no rank waits between its first and its last action, at the price of 2 p - 1 activations. Rank r
/// begins and ends r tF after rank 0. So a single step takes as long as with ZB-H1, but steps in sequence are faster.
/// Source: Qi et al., 2023, section 2.2 (ZB-H2).
/// The handcrafted order of sail-sg (`Graph.manual_order`, with memory for 2 p - 1 activations) is equal for
/// m <= 2 p - 1; with more micro-batches it runs some input gradients earlier, and takes the same time and memory.
Schedule zero_bubble_h2_schedule(int p, int m) {
  const int held = std::min(m, 2 * p - 1);
  return for_each_rank(empty_schedule(p, m),
                       [&](RankActions rank, int r) { run_rank(rank, r, m, 2 * (p - r - 1), held); });
}

constexpr const char* kZeroBubbleIdleShare = "(p - 1) / (3 m + p - 1)";

}  // namespace

ScheduleKind zero_bubble_h1_kind() {
  return {.name = "zb-h1",
          .summary = "zero bubble: 1F1B with separate weight gradients",
          .splits_backward = true,
          .idle_share = kZeroBubbleIdleShare,
          .idle_domain = "m >= p",
          .idle =
              [](const ScheduleSizes& s, const PassTimes& t) {
                return idle_where(s.microbatches >= s.ranks && t.weights_fit(), (s.ranks - 1) * t.without_weight());
              },
          .peak_activations = [](const ScheduleSizes& s, int) { return std::min(s.microbatches, s.ranks); },
          .make = [](const ScheduleSizes& s) { return zero_bubble_h1_schedule(s.ranks, s.microbatches); }};
}

// Between the first and the last action of a rank, the idle time is (p - 1) (tF + tI - 2 tW), as in the paper. In a
// single step, the delay before rank p - 1 begins counts too.
ScheduleKind zero_bubble_h2_kind() {
  return {.name = "zb-h2",
          .summary = "zb-h1 with twice the warm-up and memory: no idle time between steps",
          .splits_backward = true,
          .idle_share = kZeroBubbleIdleShare,
          .idle_domain = "m >= 2 p - 1",
          .idle =
              [](const ScheduleSizes& s, const PassTimes& t) {
                return idle_where(s.microbatches >= 2 * s.ranks - 1 && t.weights_fit(),
                                  (s.ranks - 1) * std::max(t.forward, t.without_weight() - t.backward_weight));
              },
          .peak_activations = [](const ScheduleSizes& s, int) { return std::min(s.microbatches, 2 * s.ranks - 1); },
          .make = [](const ScheduleSizes& s) { return zero_bubble_h2_schedule(s.ranks, s.microbatches); }};
}

}  // namespace stagecoach
