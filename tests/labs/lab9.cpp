#include "tests/labs/lab9.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "chapters/09_sharded_data_parallel/lab/sharded_update.h"
#include "core/allocator.h"
#include "tests/labs/class_settings.h"
#include "tests/labs/lab9_checks.h"
#include "tests/labs/lab9_steps.h"
#include "tests/labs/lab9_units.h"

namespace stagecoach::labs::lab9 {
namespace {

constexpr const char* kShard = "chapters/09_sharded_data_parallel/lab/sharded_update.h, shard_of: the drawing";

// Part 1: shards.

struct Cut {
  std::vector<Shape> shapes;
  int ranks;
};

std::vector<Cut> cuts() {
  return {
      {{{2, 3}, {2}}, 3},                                                // the drawing
      {{{2, 7}, {2}}, 3},                                                // two zeros, and a bias on one rank
      {{{4, 2}, {4}}, 4},                                                // no zeros
      {{{3}, {1}, {2, 2}, {5}}, varied("lab 9: ranks of a cut", 3, 5)},  // several tensors in a shard
      {{{5}}, 4},                                                        // a shard of zeros
      {{{3}, {2}}, 1},
  };
}

/// Returns tensors of these shapes whose elements are numbered through, from 1.
std::vector<Tensor> numbered(const std::vector<Shape>& shapes) {
  std::vector<Tensor> tensors;
  float number = 0;
  for (const Shape& shape : shapes) {
    Values values(static_cast<std::size_t>(shape.numel()));
    std::generate(values.begin(), values.end(), [&] { return ++number; });
    tensors.push_back(Tensor::from(values, shape));
  }
  return tensors;
}

std::int64_t count_of(const std::vector<Shape>& shapes) {
  std::int64_t count = 0;
  for (const Shape& shape : shapes) {
    count += shape.numel();
  }
  return count;
}

std::string to_string(const Cut& cut) {
  std::vector<std::string> shapes;
  for (const Shape& shape : cut.shapes) {
    shapes.push_back(stagecoach::to_string(shape));
  }
  return fmt::format("tensors of shapes {}, with their elements numbered from 1, and {} rank{}", fmt::join(shapes, " "),
                     cut.ranks, cut.ranks == 1 ? "" : "s");
}

void each_element_once(const Answer& answer) {
  for (const Cut& cut : cuts()) {
    set_case(to_string(cut));
    const std::vector<Tensor> tensors = numbered(cut.shapes);
    Values all(static_cast<std::size_t>(count_of(cut.shapes)));
    float number = 0;
    std::generate(all.begin(), all.end(), [&] { return ++number; });
    for (int rank = 0; rank < cut.ranks; ++rank) {
      const Values expected = part_of(all, rank, cut.ranks);
      poison(static_cast<std::int64_t>(expected.size()), {});
      const Tensor shard = answer.shard_of(tensors, rank, cut.ranks);
      if (!shard.defined() || shard.dims() != 1 || shard.to_vector<float>() != expected) {
        throw Failed(fmt::format("the shard of rank {}: {}{}", rank, fmt::join(expected, ", "), for_case()),
                     shard.defined() && shard.dims() == 1 ? fmt::format("{}", fmt::join(shard.to_vector<float>(), ", "))
                                                          : describe(shard),
                     kShard);
      }
    }
  }
}

void no_memory_besides(const Answer& answer) {
  const Cut cut{{{64, 40}, {64}, {40}}, 4};
  const std::vector<Tensor> tensors = numbered(cut.shapes);
  const auto bytes = static_cast<std::size_t>(count_of(cut.shapes) / cut.ranks) * sizeof(float);
  const std::size_t aligned = (bytes + Allocator::kAlignment - 1) / Allocator::kAlignment * Allocator::kAlignment;
  Allocator& memory = allocator(Device{});
  for (int rank = 0; rank < cut.ranks; ++rank) {
    set_case(fmt::format("tensors of {} elements, {} of them for rank {}", count_of(cut.shapes), bytes / sizeof(float),
                         rank));
    const std::size_t before = memory.stats().current_bytes;
    memory.reset_peak();
    const Tensor shard = answer.shard_of(tensors, rank, cut.ranks);
    if (const std::size_t peak = memory.stats().peak_bytes - before; peak != aligned) {
      throw Failed(fmt::format("{} bytes of new memory at the peak, those of the shard{}", aligned, for_case()),
                   fmt::format("{} bytes{}", peak, peak < aligned ? ": it is a view of other memory" : ""), kShard);
    }
  }
}

// Part 1: the update.

constexpr std::int64_t kPart = 7;
constexpr int kSteps = 3;

Values gradient_of(int rank, int step) {
  return numbers(kPart * ranks(), fmt::format("gradient {} of {}", step, rank));
}
Values first_weights() { return numbers(kPart * ranks(), "weights"); }

std::vector<Values> gradients_of(int step) {
  std::vector<Values> gradients;
  for (int rank = 0; rank < ranks(); ++rank) {
    gradients.push_back(gradient_of(rank, step));
  }
  return gradients;
}

Values updated_once(const Values& gradient) {
  const Tensor weights = Tensor::from(first_weights(), {kPart * ranks()});
  lab::sgd_step(weights, Tensor::zeros({kPart * ranks()}), Tensor::from(gradient, {kPart * ranks()}));
  return weights.to_vector<float>();
}

/// Returns what other weights after the first step would mean.
Mistakes mistakes_of_update() {
  const std::vector<Values> gradients = gradients_of(0);
  Values own;  // each rank's part of its own gradient
  for (int rank = 0; rank < ranks(); ++rank) {
    const Values part = part_of(gradients[static_cast<std::size_t>(rank)], rank, ranks());
    own.insert(own.end(), part.begin(), part.end());
  }
  Mistakes mistakes{
      {updated_once(scaled(sum_of(gradients), 1 / static_cast<float>(ranks()))),
       "those of the gradients' mean over the ranks, not of their sum: each sample already weighs 1 / N"},
      {updated_once(own), "each shard updated with the gradient of its own rank only: they are not summed before"}};
  for (int rank = 0; rank < ranks(); ++rank) {
    Values alone = first_weights();
    const Values right = updated_once(sum_of(gradients));
    const auto begin = rank * kPart;
    std::copy(right.begin() + begin, right.begin() + begin + kPart, alone.begin() + begin);
    mistakes.emplace_back(alone, "only this rank's shard updated: the others are not gathered");
  }
  return mistakes;
}

using CheckStep = std::function<void(int step, const Tensor& weights, const Tensor& velocity, Communicator& comm)>;

/// Runs steps of the update on all ranks, and calls `check` after each. Calls are stamped with the number of the step.
void run_updates(const Answer& answer, Collectives& collectives, const CheckStep& check) {
  set_case(fmt::format("{} ranks", ranks()));
  const Shape shape{kPart * ranks()};
  run_watched_collectives(ranks(), collectives, [&](Communicator& comm) {
    Tensor weights = Tensor::from(first_weights(), shape, comm.device());
    Tensor velocity;
    for (int step = 0; step < kSteps; ++step) {
      collectives.stamp(comm.rank(), step);
      answer.sharded_update(weights, Tensor::from(gradient_of(comm.rank(), step), shape, comm.device()), velocity,
                            comm);
      check(step, weights, velocity, comm);
    }
  });
}

void updates_as_one_device(const Answer& answer) {
  const Shape shape{kPart * ranks()};
  const Tensor weights = Tensor::from(first_weights(), shape);
  const Tensor velocity = Tensor::zeros(shape);
  std::vector<Values> expected;
  for (int step = 0; step < kSteps; ++step) {
    lab::sgd_step(weights, velocity, Tensor::from(sum_of(gradients_of(step)), shape));
    expected.push_back(weights.to_vector<float>());
  }
  Collectives collectives(ranks(), texts());
  run_updates(answer, collectives, [&](int step, const Tensor& mine, const Tensor& /*velocity*/, Communicator& comm) {
    require_equal(expected[static_cast<std::size_t>(step)], mine,
                  fmt::format("the weights of one device after step {}, on rank {}", step + 1, comm.rank()), kUpdate,
                  step == 0 ? mistakes_of_update() : Mistakes());
  });
}

void keeps_own_momentum(const Answer& answer) {
  constexpr std::size_t kBytes = kPart * sizeof(float);
  Collectives collectives(ranks(), texts());
  run_updates(
      answer, collectives, [&](int /*step*/, const Tensor& /*weights*/, const Tensor& velocity, Communicator& comm) {
        if (!velocity.defined() || velocity.storage()->bytes() != kBytes) {
          throw Failed(fmt::format("a velocity of {} bytes on rank {}, for its {} of {} weights", kBytes, comm.rank(),
                                   kPart, kPart * comm.size()),
                       velocity.defined() ? fmt::format("{} bytes", velocity.storage()->bytes()) : "none after a step",
                       kUpdate);
        }
      });
}

void sends_two_messages(const Answer& answer) {
  Collectives collectives(ranks(), texts());
  run_updates(answer, collectives, [](int, const Tensor&, const Tensor&, Communicator&) {});
  for (int rank = 0; rank < ranks(); ++rank) {
    for (int step = 0; step < kSteps; ++step) {
      std::vector<std::string> calls;
      for (const CommunicatorCall& call : collectives.calls_of(rank)) {
        if (call.stamp == step) {
          calls.push_back(call.operation);
        }
      }
      if (calls != std::vector<std::string>{"reduce_scatter", "all_gather_into"}) {
        throw Failed(fmt::format("reduce_scatter and all_gather_into on rank {} in step {}", rank, step),
                     calls.empty() ? "no call" : fmt::format("{}", fmt::join(calls, ", ")), kUpdate,
                     collectives.drawn());
      }
    }
  }
}

}  // namespace

std::vector<Criterion> criteria(const Answer& answer) {
  const auto check = [&](void (*body)(const Answer&)) { return [answer, body] { body(answer); }; };
  const char* const kWhole = "unit: weights are whole after gather, and have no memory after free_weights";
  const char* const kGraph = "unit: a graph from before free_weights can use them after another gather";
  const char* const kSums = "unit: reduce adds the sums over the ranks to the shard's gradient";
  const std::vector<std::string> unit{kWhole, kGraph, kSums};
  return {
      {"shards: each element is in exactly one, and all are equally long", 10, check(each_element_once), kShard},
      {"shards: no memory besides the shard", 5, check(no_memory_besides), kShard},
      {"update: weights equal those of one device, bit for bit", 10, check(updates_as_one_device), kUpdate},
      {"update: each rank keeps the momentum of its shard only", 5, check(keeps_own_momentum), kUpdate},
      {"update: one reduce-scatter and one all-gather", 5, check(sends_two_messages), kUpdate},
      {kWhole, 10, check(weights_come_and_go), kUnit},
      {kGraph, 5, check(graph_uses_them_again), kMemory},
      {kSums, 5, check(reduce_adds_sums), kUnit},
      {"unit: reduce frees the whole gradients", 5, check(reduce_frees_gradients), kMemory},
      {"step: units are gathered ahead, in both directions", 5, check(gathers_ahead), kOrder, unit},
      {"step: at most 1 + prefetch units have weights", 10, check(few_units_have_weights), kOrder, unit},
      {"step: one unit at a time has whole gradients", 5, check(one_unit_has_gradients), kOrder, unit},
      {"step: gathers go ahead of the reduction", 5, check(gathers_go_first), kOrder, unit},
      {"step: the last unit is not gathered twice", 5, check(last_unit_stays), kOrder, unit},
      {"step: steps with micro-batches train what one device trains", 10, check(trains_as_one_device), kOrder, unit},
  };
}

}  // namespace stagecoach::labs::lab9
