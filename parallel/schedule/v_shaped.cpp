/// @file
/// Pipelines placed in a V, with two stages per rank: a micro-batch goes down one arm, from rank 0 to the last rank,
/// and up the other. The last rank passes it from one of its stages to the other without a message, and rank 0 has the
/// first stage and the last.

#include <algorithm>
#include <queue>

#include "parallel/schedule/rank_actions.h"
#include "parallel/schedule/schedule_table.h"

namespace stagecoach {
namespace {

/// One of the two stages of a rank. Each call adds the next micro-batch of its kind.
class Arm {
 public:
  Arm(RankActions& rank, int stage) : rank_(rank), stage_(stage) {}
  void forward() { rank_.forward(stage_, forwards_++); }
  void backward() {
    rank_.backward(stage_, backwards_++);
    ++weights_;
  }
  void backward_input() { rank_.backward_input(stage_, backwards_++); }
  void backward_weight() { rank_.backward_weight(stage_, weights_++); }
  void backward_in_parts() {
    backward_input();
    backward_weight();
  }
  int forwards() const { return forwards_; }
  int weights() const { return weights_; }

 private:
  RankActions& rank_;
  int stage_;
  int forwards_ = 0;
  int backwards_ = 0;
  int weights_ = 0;
};

/// Calls body() `count` times.
template <class Body>
void repeat(int count, const Body& body) {
  for (int i = 0; i < count; ++i) {
    body();
  }
}

/// Generates the schedule for at least `least` micro-batches, the fewest for which the order is complete, and leaves
/// out those beyond m.
template <class Body>
Schedule v_schedule(int p, int m, int least, const Body& body) {
  if (m < 1) {
    return empty_schedule(p, m, 2);  // throws
  }
  const int n = std::max(m, least);
  const Schedule whole = for_each_rank(empty_schedule(v_placement(p), p, n), [&](RankActions rank, int r) {
    body(Arm(rank, r), Arm(rank, 2 * p - 1 - r), r, n);
  });
  return n == m ? whole : with_fewer_microbatches(whole, m);
}

/// ZB-V: no rank waits between its first and its last action, as in ZB-H2, with the memory of the first rank of 1F1B:
/// 2 p activations, each of half the layers of a rank. This requires tF = tI = tW and m >= 2 p - 1; fewer micro-batches
/// use the same order, without the missing ones. Source: Qi et al., 2023, section 6; Qi et al., "Pipeline parallelism
/// with controllable memory", 2024, section 3. The tables equal those of PyTorch's ScheduleZBVZeroBubble.
Schedule zero_bubble_v_schedule(int p, int m) {
  return v_schedule(p, m, 2 * p - 1, [&](Arm down, Arm up, int r, int n) {
    repeat(2 * (p - r) - 1, [&] { down.forward(); });
    repeat(r, [&] {
      up.forward();
      down.forward();
    });
    repeat(p - r, [&] {
      up.forward();
      up.backward_in_parts();
    });
    while (up.forwards() < n) {  // steady state: each of the six passes once
      if (down.forwards() < n) {
        down.forward();
      }
      down.backward_in_parts();
      up.forward();
      up.backward_in_parts();
    }
    repeat(r, [&] {
      down.backward_input();
      up.backward_input();
    });
    repeat(p - r, [&] { down.backward_in_parts(); });
    repeat(n - up.weights(), [&] { up.backward_weight(); });
    repeat(n - down.weights(), [&] { down.backward_weight(); });
  });
}

/// DualPipe cut in half: the two directions of DeepSeek's pipeline are the two arms of a V. In the steady state a rank
/// pairs a forward of one arm with a backward of the other. DualPipe overlaps them, so that one computes while the
/// other communicates; here they run one after the other. A rank holds 2 p + 1 activations, each of half its layers.
/// The order is complete for m >= 2 p; fewer micro-batches use the same order, without the missing ones, where PyTorch
/// reports an error. Source: DeepSeek-AI, "DeepSeek-V3 technical report", 2024, section 3.2.1, and its DualPipe
/// repository. The tables equal those of PyTorch's ScheduleDualPipeV, with each overlapped pair written as its forward,
/// then its backward.
Schedule dualpipe_v_schedule(int p, int m) {
  return v_schedule(p, m, 2 * p, [&](Arm down, Arm up, int r, int n) {
    std::queue<Arm*> waiting;  // arms whose weight gradients come later
    const auto backward_input = [&](Arm& arm) {
      arm.backward_input();
      waiting.push(&arm);
    };
    const auto backward_weight = [&] {
      waiting.front()->backward_weight();
      waiting.pop();
    };
    repeat(2 * (p - r - 1), [&] { down.forward(); });
    repeat(r + 1, [&] {
      down.forward();
      up.forward();
    });
    repeat(p - r - 1, [&] {
      up.backward_in_parts();
      up.forward();
    });
    repeat(n - 2 * p + r + 1, [&] {  // steady state: a forward, then a backward of the other arm, twice
      down.forward();
      up.backward();
      up.forward();
      down.backward();
    });
    repeat(p - r - 1, [&] {
      up.backward();
      up.forward();
      down.backward();
    });
    // The last backwards of this rank alternate between up and down; the second half of them defers its weight
    // gradients.
    for (int i = 0; i <= 2 * r + 1; ++i) {
      Arm& arm = i % 2 == 0 ? up : down;
      if (i > r) {
        backward_input(arm);
      } else {
        arm.backward();
      }
    }
    repeat(p - r - 1, [&] {
      backward_weight();
      backward_input(down);
    });
    repeat(r + 1, backward_weight);
  });
}

constexpr const char* kVShapedIdleShare = "(p - 1) / (6 m + p - 1)";

/// Returns the peak activations of a rank. `most` is the peak in the complete order.
int peak_of_v(const ScheduleSizes& s, int rank, int most) {
  return std::min({most, 2 * s.microbatches, s.microbatches + rank + 1});
}

}  // namespace

ScheduleKind zero_bubble_v_kind() {
  return {.name = "zbv",
          .summary = "zero bubble in a V: no idle time between steps, with the memory of 1F1B",
          .min_chunks = 2,
          .max_chunks = 2,
          .splits_backward = true,
          .is_v_shaped = true,
          .idle_share = kVShapedIdleShare,
          .idle_domain = "m >= 2 p - 1",
          .idle =
              [](const ScheduleSizes& s, const PassTimes& t) {
                return idle_where(s.microbatches >= 2 * s.ranks - 1 && t.are_equal(), (s.ranks - 1) * t.forward / 2);
              },
          .peak_activations = [](const ScheduleSizes& s, int rank) { return peak_of_v(s, rank, 2 * s.ranks); },
          .make = [](const ScheduleSizes& s) { return zero_bubble_v_schedule(s.ranks, s.microbatches); }};
}

// The published (p - 1) (F&B + B - 3 W) counts an overlapped pair as one action, which waits for both of its inputs. If
// the pair runs one after the other, the forward need not wait for the input of the backward.
ScheduleKind dualpipe_v_kind() {
  return {.name = "dualpipev",
          .summary = "DualPipe in a V: a forward of one arm beside a backward of the other",
          .min_chunks = 2,
          .max_chunks = 2,
          .splits_backward = true,
          .is_v_shaped = true,
          .idle_share = kVShapedIdleShare,
          .idle_domain = "m >= 2 p",
          .idle =
              [](const ScheduleSizes& s, const PassTimes& t) {
                return idle_where(s.microbatches >= 2 * s.ranks && t.are_equal(), (s.ranks - 1) * t.forward / 2);
              },
          .peak_activations = [](const ScheduleSizes& s, int rank) { return peak_of_v(s, rank, 2 * s.ranks + 1); },
          .make = [](const ScheduleSizes& s) { return dualpipe_v_schedule(s.ranks, s.microbatches); }};
}

}  // namespace stagecoach
