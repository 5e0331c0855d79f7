/// @file
/// Pipelines with several stages per rank, placed round-robin.

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "parallel/schedule/generators.h"
#include "parallel/schedule/rank_actions.h"

namespace stagecoach {
namespace {

/// The micro-batch and the chunk of each forward; backwards take the chunks from the end.
struct Turn {
  int microbatch;
  int chunk;
};
std::vector<Turn> turns(int m, int v, int group) {
  std::vector<Turn> order;
  order.reserve(static_cast<std::size_t>(m) * static_cast<std::size_t>(v));
  for (int first = 0; first < m; first += group) {
    for (int chunk = 0; chunk < v; ++chunk) {
      for (int microbatch = first; microbatch < std::min(first + group, m); ++microbatch) {
        order.push_back({microbatch, chunk});
      }
    }
  }
  return order;
}

bool is_legal_group(int p, int m, int group) { return p <= group && group <= m && (m % group == 0 || m % group >= p); }

/// "8 or 12": the micro-batch counts next to m for which `legal` holds.
template <class Legal>
std::string nearest(int m, const Legal& legal) {
  int below = m - 1;
  while (below >= 1 && !legal(below)) {
    --below;
  }
  int above = m + 1;
  while (!legal(above)) {
    ++above;
  }
  return below >= 1 ? fmt::format("{} or {}", below, above) : std::to_string(above);
}

/// The group next to `wanted` that is_legal_group takes. Needs p <= m: then all m are one.
int nearest_group(int p, int m, int wanted) {
  const int group = std::clamp(wanted, p, m);
  int distance = 0;
  while (!is_legal_group(p, m, group - distance) && !is_legal_group(p, m, group + distance)) {
    ++distance;
  }
  return is_legal_group(p, m, group - distance) ? group - distance : group + distance;
}

/// What to ask for in place of a group that is_legal_group refuses.
std::string legal_instead(int p, int m, int group) {
  const int n = std::max(group, p);
  const std::string counts = fmt::format("the nearest micro-batch counts for groups of {} are {}", n,
                                         nearest(m, [&](int count) { return is_legal_group(p, count, n); }));
  return m < p ? counts
               : fmt::format("the nearest legal group is {0} (--group {0}); {1}", nearest_group(p, m, group), counts);
}

void require_legal_group(const char* name, int p, int m, int group) {
  if (!is_legal_group(p, m, group)) {
    throw UsageError(fmt::format(
        "{}: {} micro-batches in groups of {} on {} ranks: a group has at least {} and at most all of them, "
        "and what is left over is nothing or at least {}; {}",
        name, m, group, p, p, p, legal_instead(p, m, group)));
  }
}

}  // namespace

Schedule interleaved_schedule(int p, int m, int v, int group) {
  if (v == 1) {
    return one_f_one_b_schedule(p, m);
  }
  Schedule empty = empty_schedule(p, m, v);  // refuses sizes below 1
  const int n = group == 0 ? p : group;
  require_legal_group("interleaved", p, m, n);
  const std::vector<Turn> order = turns(m, v, n);
  return for_each_rank(std::move(empty), [&](RankActions rank, int r) {
    const auto turn = [&](int i) { return order[static_cast<std::size_t>(i)]; };
    one_f_one_b_order(
        m * v, 2 * (p - r - 1) + (v - 1) * n, [&](int i) { rank.forward(turn(i).chunk * p + r, turn(i).microbatch); },
        [&](int i) { rank.backward((v - 1 - turn(i).chunk) * p + r, turn(i).microbatch); });
  });
}

Schedule interleaved_zero_bubble_schedule(int p, int m, int v, int group) {
  if (v == 1) {
    return zero_bubble_h1_schedule(p, m);
  }
  Schedule empty = empty_schedule(p, m, v);  // refuses sizes below 1
  const int n = group == 0 ? std::min(p, m) : group;
  if (n != m) {  // with one group of all micro-batches these can be fewer than ranks
    require_legal_group("interleaved-zb", p, m, n);
  }
  const std::vector<Turn> order = turns(m, v, n);
  return for_each_rank(std::move(empty), [&](RankActions rank, int r) {
    const auto turn = [&](int i) { return order[static_cast<std::size_t>(i)]; };
    const auto backward_stage = [&](int i) { return (v - 1 - turn(i).chunk) * p + r; };
    zero_bubble_order(
        m * v, p - r - 1 + (v - 1) * n, r,  //
        [&](int i) { rank.forward(turn(i).chunk * p + r, turn(i).microbatch); },
        [&](int i) { rank.backward_input(backward_stage(i), turn(i).microbatch); },
        [&](int i) { rank.backward_weight(backward_stage(i), turn(i).microbatch); });
  });
}

Schedule looped_breadth_first_schedule(int p, int m, int v) {
  return for_each_rank(empty_schedule(p, m, v), [&](RankActions rank, int r) {
    for (int chunk = 0; chunk < v; ++chunk) {
      for (int i = 0; i < m; ++i) {
        rank.forward(chunk * p + r, i);
      }
    }
    for (int chunk = v - 1; chunk >= 0; --chunk) {
      for (int i = 0; i < m; ++i) {
        rank.backward(chunk * p + r, i);
      }
    }
  });
}

}  // namespace stagecoach
