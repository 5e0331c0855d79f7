#include "parallel/schedule/generators.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace stagecoach {
namespace {

/// A schedule of p ranks and v chunks without actions.
Schedule empty_schedule(int p, int m, int v) {
  if (p < 1 || m < 1 || v < 1) {
    throw UsageError(
        fmt::format("a schedule of {} ranks, {} micro-batches and {} chunks: each is at least 1", p, m, v));
  }
  Schedule schedule{dealt_in_turn(p * v, p), p * v, m, std::vector<std::vector<Action>>(static_cast<std::size_t>(p))};
  for (auto& actions : schedule.ranks) {
    actions.reserve(static_cast<std::size_t>(2 * m * v));
  }
  return schedule;
}

/// Appends to one rank's actions.
class Rank {
 public:
  explicit Rank(std::vector<Action>& actions) : actions_(actions) {}
  void forward(int stage, int microbatch) { add(Operation::forward, stage, microbatch); }
  void backward(int stage, int microbatch) { add(Operation::backward, stage, microbatch); }
  void backward_input(int stage, int microbatch) { add(Operation::backward_input, stage, microbatch); }
  void backward_weight(int stage, int microbatch) { add(Operation::backward_weight, stage, microbatch); }

 private:
  void add(Operation operation, int stage, int microbatch) { actions_.push_back({operation, stage, microbatch}); }
  std::vector<Action>& actions_;
};

/// Calls body(rank, its number) for each rank.
template <class Body>
Schedule for_each_rank(Schedule schedule, const Body& body) {
  for (int r = 0; r < schedule.rank_count(); ++r) {
    body(Rank(schedule.ranks[static_cast<std::size_t>(r)]), r);
  }
  return schedule;
}

/// The micro-batch and the chunk of each forward of the interleaved order; backwards take the chunks from the end.
struct Turn {
  int microbatch;
  int chunk;
};
std::vector<Turn> turns(int m, int v, int group) {
  std::vector<Turn> order;
  order.reserve(static_cast<std::size_t>(m * v));
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

}  // namespace

Schedule naive_schedule(int p, int m) {
  return for_each_rank(empty_schedule(p, m, 1), [&](Rank rank, int r) {
    for (int i = 0; i < m; ++i) {
      rank.forward(r, i);
      rank.backward(r, i);
    }
  });
}

Schedule gpipe_schedule(int p, int m) {
  return for_each_rank(empty_schedule(p, m, 1), [&](Rank rank, int r) {
    for (int i = 0; i < m; ++i) {
      rank.forward(r, i);
    }
    for (int i = 0; i < m; ++i) {
      rank.backward(r, i);
    }
  });
}

Schedule one_f_one_b_schedule(int p, int m) {
  return for_each_rank(empty_schedule(p, m, 1), [&](Rank rank, int r) {
    const int warm_up = std::min(p - r - 1, m);
    for (int i = 0; i < warm_up; ++i) {
      rank.forward(r, i);
    }
    for (int i = warm_up; i < m; ++i) {  // steady: one forward, one backward
      rank.forward(r, i);
      rank.backward(r, i - warm_up);
    }
    for (int i = m - warm_up; i < m; ++i) {  // cool down
      rank.backward(r, i);
    }
  });
}

Schedule interleaved_schedule(int p, int m, int v, int group) {
  if (v == 1) {
    return one_f_one_b_schedule(p, m);
  }
  const int n = group == 0 ? p : group;
  if (m >= 1 && p >= 1 && !is_legal_group(p, m, n)) {
    throw UsageError(fmt::format(
        "interleaved: {} micro-batches in groups of {} on {} ranks: a group has at least {} and at most all of them, "
        "and what is left over is nothing or at least {}; {}",
        m, n, p, p, p, legal_instead(p, m, n)));
  }
  const std::vector<Turn> order = turns(m, v, n);
  const int total = m * v;
  return for_each_rank(empty_schedule(p, m, v), [&](Rank rank, int r) {
    const auto forward = [&](int i) {
      const Turn& turn = order[static_cast<std::size_t>(i)];
      rank.forward(turn.chunk * p + r, turn.microbatch);
    };
    const auto backward = [&](int i) {
      const Turn& turn = order[static_cast<std::size_t>(i)];
      rank.backward((v - 1 - turn.chunk) * p + r, turn.microbatch);
    };
    const int warm_up = std::min(2 * (p - r - 1) + (v - 1) * n, total);
    for (int i = 0; i < warm_up; ++i) {
      forward(i);
    }
    for (int i = warm_up; i < total; ++i) {
      forward(i);
      backward(i - warm_up);
    }
    for (int i = total - warm_up; i < total; ++i) {
      backward(i);
    }
  });
}

Schedule looped_breadth_first_schedule(int p, int m, int v) {
  return for_each_rank(empty_schedule(p, m, v), [&](Rank rank, int r) {
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

Schedule zero_bubble_h1_schedule(int p, int m) {
  if (p >= 1 && m >= 1 && m < p) {
    throw UsageError(fmt::format("zb-h1: {} micro-batches on {} ranks; it needs at least {}", m, p, p));
  }
  return for_each_rank(empty_schedule(p, m, 1), [&](Rank rank, int r) {
    const int warm_up = p - r - 1;
    int weights = 0;  // weight gradients done
    // Rank r lets r of them wait: its activations are then those of p micro-batches, as on every rank.
    const auto backward = [&](int i) {
      rank.backward_input(r, i);
      if (i >= r) {
        rank.backward_weight(r, weights++);
      }
    };
    for (int i = 0; i < warm_up; ++i) {
      rank.forward(r, i);
    }
    for (int i = warm_up; i < m; ++i) {
      rank.forward(r, i);
      backward(i - warm_up);
    }
    for (int i = m - warm_up; i < m; ++i) {
      backward(i);
    }
    while (weights < m) {  // what waited fills the end, when others still work
      rank.backward_weight(r, weights++);
    }
  });
}

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> names{"naive",      "gpipe",      "1f1b", "interleaved",
                                              "foldx_aiao", "foldx_fifo", "zb-h1"};
  return names;
}

bool sends_wait(const std::string& name) { return name == "interleaved" && false; }

Schedule make_schedule(const std::string& name, int p, int m, int v, int group) {
  const bool takes_chunks = name == "interleaved" || name == "foldx_aiao" || name == "foldx_fifo";
  if (std::find(schedule_names().begin(), schedule_names().end(), name) == schedule_names().end()) {
    throw UsageError(fmt::format("unknown schedule '{}'; known are {}", name, fmt::join(schedule_names(), ", ")));
  }
  if (v != 1 && !takes_chunks) {
    throw UsageError(
        fmt::format("{} has one stage per rank; chunks are for interleaved, foldx_aiao and "
                    "foldx_fifo",
                    name));
  }
  if (group != 0 && name != "interleaved" && name != "foldx_fifo") {
    throw UsageError(fmt::format("{} has no groups; they are for interleaved and foldx_fifo", name));
  }
  if (name == "naive") {
    return naive_schedule(p, m);
  }
  if (name == "gpipe") {
    return gpipe_schedule(p, m);
  }
  if (name == "1f1b") {
    return one_f_one_b_schedule(p, m);
  }
  if (name == "zb-h1") {
    return zero_bubble_h1_schedule(p, m);
  }
  return name == "foldx_aiao" ? looped_breadth_first_schedule(p, m, v) : interleaved_schedule(p, m, v, group);
}

}  // namespace stagecoach
