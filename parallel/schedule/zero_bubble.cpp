/// @file
/// Zero bubble pipelines with one stage per rank: 1F1B with the weight gradients apart.

#include <algorithm>

#include "parallel/schedule/rank_actions.h"
#include "parallel/schedule/schedule_table.h"

namespace stagecoach {
namespace {

/// One rank, which holds the activations of its warm-up, of one forward more, and of the weight gradients that wait:
/// `held` in all.
void run_rank(RankActions& rank, int stage, int m, int warm_up, int held) {
  zero_bubble_order(
      m, warm_up, std::max(0, held - 1 - warm_up), [&](int i) { rank.forward(stage, i); },
      [&](int i) { rank.backward_input(stage, i); }, [&](int i) { rank.backward_weight(stage, i); });
}

/// 1F1B with the weight gradients moved to where a rank would otherwise be idle; p activations on every rank.
/// Source: Qi et al., "Zero bubble pipeline parallelism", 2023, section 2.1 (ZB-H1).
Schedule zero_bubble_h1_schedule(int p, int m) {
  return for_each_rank(empty_schedule(p, m), [&](RankActions rank, int r) { run_rank(rank, r, m, p - r - 1, p); });
}

/// The same with a warm-up twice as long, which fills the time before the first backward too: with tF = tI = tW and
/// m >= 2 p - 1 no rank waits between its first and its last action, at the price of 2 p - 1 activations. Rank r begins
/// and ends r tF after rank 0, so a step alone is as long as that of ZB-H1, and steps that follow each other are not.
/// Source: Qi et al., 2023, section 2.2 (ZB-H2). sail-sg's handcrafted order (`Graph.manual_order`, with memory for
/// 2 p - 1 activations) is equal for m <= 2 p - 1; with more micro-batches it takes some input gradients earlier, and
/// needs the same time and memory.
Schedule zero_bubble_h2_schedule(int p, int m) {
  const int held = std::min(m, 2 * p - 1);
  return for_each_rank(empty_schedule(p, m),
                       [&](RankActions rank, int r) { run_rank(rank, r, m, 2 * (p - r - 1), held); });
}

constexpr const char* kZeroBubbleIdleShare = "(p - 1) / (3 m + p - 1)";

}  // namespace

ScheduleKind zero_bubble_h1_kind() {
  return {.name = "zb-h1",
          .summary = "zero bubble: 1F1B with the weight gradients apart",
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

// Within a rank's first and last action the idle time is (p - 1) (tF + tI - 2 tW), as the paper has it. A step alone is
// also as long as rank p - 1 begins late.
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
