/// @file
/// Pipelines with one stage per rank, whose backwards are not split.

#include "parallel/schedule/generators.h"
#include "parallel/schedule/rank_actions.h"

namespace stagecoach {

Schedule naive_schedule(int p, int m) {
  return for_each_rank(empty_schedule(p, m), [&](RankActions rank, int r) {
    for (int i = 0; i < m; ++i) {
      rank.forward(r, i);
      rank.backward(r, i);
    }
  });
}

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

Schedule one_f_one_b_schedule(int p, int m) {
  return for_each_rank(empty_schedule(p, m), [&](RankActions rank, int r) {
    one_f_one_b_order(
        m, p - r - 1, [&](int i) { rank.forward(r, i); }, [&](int i) { rank.backward(r, i); });
  });
}

}  // namespace stagecoach
