/// @file
/// Zero bubble pipelines with one stage per rank: 1F1B with the weight gradients apart.

#include <algorithm>

#include "parallel/schedule/generators.h"
#include "parallel/schedule/rank_actions.h"

namespace stagecoach {
namespace {

/// One rank, which holds the activations of its warm-up, of one forward more, and of the weight gradients that wait:
/// `held` in all.
void run_rank(RankActions& rank, int stage, int m, int warm_up, int held) {
  zero_bubble_order(
      m, warm_up, std::max(0, held - 1 - warm_up), [&](int i) { rank.forward(stage, i); },
      [&](int i) { rank.backward_input(stage, i); }, [&](int i) { rank.backward_weight(stage, i); });
}

}  // namespace

Schedule zero_bubble_h1_schedule(int p, int m) {
  return for_each_rank(empty_schedule(p, m), [&](RankActions rank, int r) { run_rank(rank, r, m, p - r - 1, p); });
}

Schedule zero_bubble_h2_schedule(int p, int m) {
  const int held = std::min(m, 2 * p - 1);
  return for_each_rank(empty_schedule(p, m),
                       [&](RankActions rank, int r) { run_rank(rank, r, m, 2 * (p - r - 1), held); });
}

}  // namespace stagecoach
