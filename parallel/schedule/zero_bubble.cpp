/// @file
/// Zero bubble pipelines with one stage per rank: 1F1B with the weight gradients apart.

#include "parallel/schedule/generators.h"
#include "parallel/schedule/rank_actions.h"

namespace stagecoach {
namespace {

void run_rank(RankActions& rank, int stage, int m, int warm_up, int waiting) {
  zero_bubble_order(
      m, warm_up, waiting, [&](int i) { rank.forward(stage, i); }, [&](int i) { rank.backward_input(stage, i); },
      [&](int i) { rank.backward_weight(stage, i); });
}

}  // namespace

// Rank r holds the activations of its warm-up, of one forward more, and of the weight gradients that wait: p in all.
Schedule zero_bubble_h1_schedule(int p, int m) {
  return for_each_rank(empty_schedule(p, m), [&](RankActions rank, int r) { run_rank(rank, r, m, p - r - 1, r); });
}

// Both twice as large: 2 p - 1 in all.
Schedule zero_bubble_h2_schedule(int p, int m) {
  return for_each_rank(empty_schedule(p, m),
                       [&](RankActions rank, int r) { run_rank(rank, r, m, 2 * (p - r - 1), 2 * r); });
}

}  // namespace stagecoach
