/// @file
/// Pipelines placed in a V, with two stages per rank: a micro-batch goes down one arm, from rank 0 to the last, and up
/// the other. The last rank hands it from its one stage to its other without a message, and rank 0 has both ends.

#include <algorithm>
#include <queue>

#include "parallel/schedule/generators.h"
#include "parallel/schedule/rank_actions.h"

namespace stagecoach {
namespace {

/// One of a rank's two stages. Each call takes the next micro-batch of its kind.
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

/// Generates for at least `least` micro-batches, the fewest with which the order is whole, and leaves out those that
/// are too many.
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

}  // namespace

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
    while (up.forwards() < n) {  // steady: each of the six passes once
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

Schedule dualpipe_v_schedule(int p, int m) {
  return v_schedule(p, m, 2 * p, [&](Arm down, Arm up, int r, int n) {
    std::queue<Arm*> waiting;  // whose weight gradients come later
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
    repeat(n - 2 * p + r + 1, [&] {  // steady: a forward with a backward of the other arm, twice
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
    // The last backwards of this rank, up and down in turn: the second half of them leaves its weight gradients.
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

}  // namespace stagecoach
