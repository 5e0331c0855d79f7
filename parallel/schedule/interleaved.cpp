/// @file
/// Pipelines with several stages per rank, placed round-robin.

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "parallel/schedule/rank_actions.h"
#include "parallel/schedule/schedule_table.h"

namespace stagecoach {
namespace {

/// The micro-batch and the chunk of a forward. Backwards take the chunks in reverse order.
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

/// Returns the micro-batch counts nearest to m for which `legal` holds: "8 or 12".
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

/// Returns the group nearest to `requested` that is_legal_group accepts. Needs p <= m: then a group of all m
/// micro-batches is legal.
int nearest_group(int p, int m, int requested) {
  const int group = std::clamp(requested, p, m);
  int distance = 0;
  while (!is_legal_group(p, m, group - distance) && !is_legal_group(p, m, group + distance)) {
    ++distance;
  }
  return is_legal_group(p, m, group - distance) ? group - distance : group + distance;
}

/// Returns advice on what to choose instead of a group that is_legal_group rejects.
std::string legal_instead(int p, int m, int group) {
  const int n = std::max(group, p);
  const std::string counts = fmt::format("`microbatches` {1} with groups of {0}", n,
                                         nearest(m, [&](int count) { return is_legal_group(p, count, n); }));
  return m < p ? "use " + counts : fmt::format("use `group` {}, or {}", nearest_group(p, m, group), counts);
}

void require_legal_group(const char* name, int p, int m, int group) {
  if (!is_legal_group(p, m, group)) {
    throw UsageError(
        fmt::format("{}: {} micro-batches cannot run in groups of {} on {} ranks: expected at least {} micro-batches "
                    "per group, at most all of them, and none or at least {} left over; {}",
                    name, m, group, p, p, p, legal_instead(p, m, group)));
  }
}

/// 1F1B over v chunks per rank, in groups of `group` micro-batches (0: p). It has less idle time and more messages.
/// With v = 1 it is 1F1B. Source: Narayanan et al., "Efficient large-scale language model training", 2021, section 2.2.
/// Legal groups: p <= group <= m, and m mod group is 0 or at least p. Errors call the schedule `name`.
Schedule interleaved_schedule(const char* name, int p, int m, int v, int group) {
  if (v == 1) {
    return make_schedule("1f1b", p, m);
  }
  Schedule empty = empty_schedule(p, m, v);  // throws for sizes below 1
  const int n = group == 0 ? p : group;
  require_legal_group(name, p, m, n);
  const std::vector<Turn> order = turns(m, v, n);
  return for_each_rank(std::move(empty), [&](RankActions rank, int r) {
    const auto turn = [&](int i) { return order[static_cast<std::size_t>(i)]; };
    one_f_one_b_order(
        m * v, 2 * (p - r - 1) + (v - 1) * n, [&](int i) { rank.forward(turn(i).chunk * p + r, turn(i).microbatch); },
        [&](int i) { rank.backward((v - 1 - turn(i).chunk) * p + r, turn(i).microbatch); });
  });
}

/// Interleaved 1F1B with half its extra warm-up and with separate weight gradients, as in ZB-H1; v = 1 makes it ZB-H1.
/// Legal groups are those of interleaved_schedule and a group of all micro-batches (0: p, or all micro-batches if they
/// are fewer). Source: Qi et al., "Zero bubble pipeline parallelism", 2023, section 2.1, over chunks as in PyTorch's
/// ScheduleInterleavedZeroBubble. The tables equal PyTorch's for the group that PyTorch uses:
/// m / max(1, m / p), with each quotient rounded down. PyTorch needs m to be a multiple of this group; here the last
/// group may be smaller.
Schedule interleaved_zero_bubble_schedule(int p, int m, int v, int group) {
  if (v == 1) {
    return make_schedule("zb-h1", p, m);
  }
  Schedule empty = empty_schedule(p, m, v);  // throws for sizes below 1
  const int n = group == 0 ? std::min(p, m) : group;
  if (n != m) {  // a group of all micro-batches may be smaller than p
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

/// Runs all micro-batches through the first chunk, then all through the next; the backwards likewise, from the last
/// chunk to the first. The gradients of a chunk are complete as soon as the rank moves on to the next chunk, at the
/// price of m v activations. Source: Lamy-Poirier, "Breadth-first pipeline parallelism", 2022.
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

constexpr const char* kInterleavedIdleShare = "(p - 1) / (v m + p - 1)";

std::optional<double> idle_of_chunks(const ScheduleSizes& s, const PassTimes& t) {
  return idle_where(s.microbatches >= s.ranks || s.chunks == 1, (s.ranks - 1) * t.total() / s.chunks);
}
int group_of(const ScheduleSizes& s) { return s.group == 0 ? std::min(s.ranks, s.microbatches) : s.group; }
int peak_of_interleaved(const ScheduleSizes& s, int rank) {
  const int warm_up = 2 * (s.ranks - rank - 1) + (s.chunks - 1) * group_of(s);
  return std::min(s.microbatches * s.chunks, s.chunks == 1 ? s.ranks - rank : warm_up + 1);
}

}  // namespace

ScheduleKind interleaved_kind() {
  return {.name = "interleaved",
          .summary = "1F1B over chunks",
          .max_chunks = kAnyChunks,
          .takes_group = true,
          .idle_share = kInterleavedIdleShare,
          .idle_domain = "m >= p",
          .idle = idle_of_chunks,
          .peak_activations = peak_of_interleaved,
          .make = [](const ScheduleSizes& s) {
            return interleaved_schedule("interleaved", s.ranks, s.microbatches, s.chunks, s.group);
          }};
}

ScheduleKind interleaved_sync_kind() {
  ScheduleKind kind = interleaved_kind();
  kind.name = "interleaved-sync";
  kind.summary = "the order of interleaved; senders wait for their receivers";
  kind.sends_wait = true;  // as in Megatron-LM with --no-overlap-p2p-communication
  kind.make = [](const ScheduleSizes& s) {
    return interleaved_schedule("interleaved-sync", s.ranks, s.microbatches, s.chunks, s.group);
  };
  return kind;
}

ScheduleKind looped_breadth_first_kind() {
  return {
      .name = "foldx_aiao",
      .summary = "looped breadth-first: chunk by chunk, all micro-batches through each",
      .max_chunks = kAnyChunks,
      .idle_share = kInterleavedIdleShare,
      .idle_domain = "m >= p",
      .idle = idle_of_chunks,
      .peak_activations = [](const ScheduleSizes& s, int) { return s.microbatches * s.chunks; },
      .make = [](const ScheduleSizes& s) { return looped_breadth_first_schedule(s.ranks, s.microbatches, s.chunks); }};
}

ScheduleKind interleaved_zero_bubble_kind() {
  return {.name = "interleaved-zb",
          .summary = "zb-h1 over chunks",
          .max_chunks = kAnyChunks,
          .takes_group = true,
          .splits_backward = true,
          .idle_share = "(p - 1) / (3 v m + p - 1)",
          .idle_domain = "m >= p",
          .idle =
              [](const ScheduleSizes& s, const PassTimes& t) {
                return idle_where(s.microbatches >= s.ranks && t.weights_fit(),
                                  (s.ranks - 1) * t.without_weight() / s.chunks);
              },
          .peak_activations =
              [](const ScheduleSizes& s, int) {
                return std::min(s.microbatches * s.chunks, (s.chunks - 1) * group_of(s) + s.ranks);
              },
          .make =
              [](const ScheduleSizes& s) {
                return interleaved_zero_bubble_schedule(s.ranks, s.microbatches, s.chunks, s.group);
              }};
}

}  // namespace stagecoach
