/// @file
/// Wrong answers to lab 9. Each differs from the solution (tests/labs/solutions/lab9.cpp) in one thing.

#include "tests/labs/wrong/lab9.h"

#include <algorithm>

#include "chapters/09_sharded_data_parallel/lab/sharded_update.h"
#include "core/ops.h"
#include "parallel/data_parallel/flat.h"
#include "parallel/data_parallel/sharded/before_backward.h"

namespace stagecoach::labs::lab9 {
namespace {

using lab::ShardedModel;
using lab::Unit;
using Tensors = std::vector<Tensor>;

// Part 1.

/// Returns elements first … of the flat tensor in a shard of `part`, the rest of which is as it is made by `make`.
Tensor slice_of(const Tensors& tensors, std::int64_t first, std::int64_t part, Tensor shard) {
  const Tensor flat = flattened(tensors);
  const std::int64_t length = std::clamp(flat.numel() - first, std::int64_t{0}, part);
  if (length > 0) {
    shard.narrow(0, length).copy_from(flat.narrow(first, length));
  }
  return shard;
}

std::int64_t count_of(const Tensors& tensors) { return flat_for(tensors).numel(); }

Tensor rounded_down(const Tensors& tensors, int rank, int ranks) {
  const std::int64_t part = count_of(tensors) / ranks;
  return slice_of(tensors, rank * part, part, Tensor::zeros({part}));
}

Tensor part_of_each(const Tensors& tensors, int rank, int ranks) {
  Tensors parts;
  for (const Tensor& tensor : tensors) {
    parts.push_back(lab::shard_of({tensor}, rank, ranks));
  }
  return flattened(parts);
}

Tensor unset_padding(const Tensors& tensors, int rank, int ranks) {
  const std::int64_t part = (count_of(tensors) + ranks - 1) / ranks;
  return slice_of(tensors, rank * part, part, Tensor::empty({part}));
}

Tensor flat_first(const Tensors& tensors, int rank, int ranks) {
  const Tensor flat = padded(flattened(tensors), ranks);
  const std::int64_t part = flat.numel() / ranks;
  return flat.narrow(rank * part, part).clone();
}

struct UpdateMistakes {
  bool mean = false;
  bool own_gradients = false;
  bool all_momentum = false;
  bool all_reduces = false;
  bool not_gathered = false;
};

void wrong_update(Tensor& weights, const Tensor& gradients, Tensor& velocity, Communicator& comm,
                  const UpdateMistakes& wrong) {
  const std::int64_t part = weights.numel() / comm.size();
  const std::int64_t first = comm.rank() * part;
  Tensor gradient;
  if (wrong.all_reduces) {
    Tensor sums = gradients.clone();
    comm.all_reduce(sums);
    gradient = sums.narrow(first, part);
  } else {
    gradient = comm.reduce_scatter(gradients);
  }
  if (wrong.own_gradients) {
    gradient = gradients.narrow(first, part);
  }
  if (wrong.mean) {
    gradient = scale(gradient, 1.0 / comm.size());
  }
  if (!velocity.defined()) {
    velocity = Tensor::zeros({wrong.all_momentum ? weights.numel() : part}, DType::float32, comm.device());
  }
  const Tensor shard = weights.narrow(first, part);
  lab::sgd_step(shard, wrong.all_momentum ? velocity.narrow(first, part) : velocity, gradient);
  if (!wrong.not_gathered) {
    comm.all_gather_into(weights, shard);
  }
}

// Part 2.

Tensor gathered(const Unit& unit, Communicator& comm) {
  Tensor whole = Tensor::empty(unit.weights.shape(), DType::float32, comm.device());
  comm.all_gather_into(whole, unit.shard);
  return whole;
}

/// Gathers also what is whole already.
void gather_again(Unit& unit, Communicator& comm) {
  unit.weights.storage()->take_memory(*gathered(unit, comm).storage());
  unit.has_weights = true;
}

/// Makes the parameters views of another tensor.
void gather_into_new_tensors(Unit& unit, Communicator& comm) {
  if (unit.has_weights) {
    return;
  }
  unit.weights = gathered(unit, comm);
  const Tensors views = views_of(unit.weights, unit.parameters);
  for (std::size_t i = 0; i < views.size(); ++i) {
    unit.parameters[i].rebind(views[i]);
  }
  unit.has_weights = true;
}

/// A rank whose shard has only zeros leaves the call out.
void gather_if_needed(Unit& unit, Communicator& comm) {
  const std::vector<float> shard = unit.shard.to_vector<float>();
  if (std::any_of(shard.begin(), shard.end(), [](float value) { return value != 0; })) {
    lab::gather(unit, comm);
  }
}

/// Frees a copy: the parameters are still views of the memory.
void free_a_copy(Unit& unit) {
  unit.weights = unit.weights.clone();
  lab::free_weights(unit);
}

void reduce_anew(Unit& unit, Communicator& comm) {
  unit.gradient = {};
  lab::reduce(unit, comm);
}

void reduce_and_keep(Unit& unit, Communicator& comm) {
  Tensors gradients;
  for (const Tensor& parameter : unit.parameters) {
    gradients.push_back(parameter.grad());
  }
  const Tensor sums = comm.reduce_scatter(padded(flattened(gradients), comm.size()));
  unit.gradient = unit.gradient.defined() ? add(unit.gradient, sums) : sums;
}

// Part 3.

struct StepMistakes {
  bool gathers_all = false;
  bool no_prefetch = false;
  bool only_forward_prefetch = false;
  bool keeps_weights = false;
  bool frees_last = false;
  bool reduces_first = false;
  bool reduces_at_end = false;
  bool first_unit_stays = false;
  bool first_unit_forgotten = false;
};

void gather_from(ShardedModel& model, int first, int direction, Communicator& comm, const StepMistakes& wrong) {
  const int way = wrong.only_forward_prefetch ? 1 : direction;
  const int most = wrong.gathers_all ? static_cast<int>(model.units.size()) : wrong.no_prefetch ? 0 : model.prefetch;
  for (int ahead = 0; model.has(first) && ahead <= most; ++ahead) {
    if (const int u = first + ahead * way; model.has(u)) {
      lab::gather(model.unit(u), comm);
    }
  }
}

void wrong_reach(ShardedModel& model, int u, Communicator& comm, const StepMistakes& wrong) {
  const bool has_done = model.has(u + 1) && !(wrong.first_unit_forgotten && u < 0);
  if (has_done && !(wrong.first_unit_stays && u < 0)) {
    lab::free_weights(model.unit(u + 1));
  }
  if (wrong.reduces_first && has_done) {
    lab::reduce(model.unit(u + 1), comm);
  }
  gather_from(model, u, -1, comm, wrong);
  if (wrong.reduces_at_end) {
    for (int done = static_cast<int>(model.units.size()) - 1; u < 0 && model.has(done); --done) {
      lab::reduce(model.unit(done), comm);
    }
  } else if (has_done && !wrong.reduces_first) {
    lab::reduce(model.unit(u + 1), comm);
  }
}

Tensor wrong_forward(ShardedModel& model, const Tensor& x, Communicator& comm, const StepMistakes& wrong) {
  Tensor y = x;
  for (int u = 0; model.has(u); ++u) {
    gather_from(model, u, 1, comm, wrong);
    y = model.unit(u).layers->forward(y);
    if (!wrong.keeps_weights && (model.has(u + 1) || wrong.frees_last)) {
      lab::free_weights(model.unit(u));
    }
    y = before_backward(y, [&model, u, &comm, wrong] { wrong_reach(model, u, comm, wrong); });
  }
  return y;
}

}  // namespace

std::vector<WrongAnswer<Answer>> wrong_answers() {
  const Answer right{.shard_of = lab::shard_of,
                     .sharded_update = lab::sharded_update,
                     .gather = lab::gather,
                     .free_weights = lab::free_weights,
                     .reduce = lab::reduce,
                     .forward = lab::forward,
                     .reach = lab::reach};
  std::vector<WrongAnswer<Answer>> answers;
  const auto add_answer = [&](const char* name, const char* mistake, const char* criterion) -> Answer& {
    return answers.emplace_back(WrongAnswer<Answer>{name, mistake, criterion, right}).answer;
  };
  const auto update = [](const UpdateMistakes& wrong) {
    return [wrong](Tensor& weights, const Tensor& gradients, Tensor& velocity, Communicator& comm) {
      wrong_update(weights, gradients, velocity, comm, wrong);
    };
  };
  const auto add_step = [&](const char* name, const char* mistake, const char* criterion, const StepMistakes& wrong) {
    Answer& answer = add_answer(name, mistake, criterion);
    answer.forward = [wrong](ShardedModel& model, const Tensor& x, Communicator& comm) {
      return wrong_forward(model, x, comm, wrong);
    };
    answer.reach = [wrong](ShardedModel& model, int u, Communicator& comm) { wrong_reach(model, u, comm, wrong); };
  };
  const char* const each = "shards: each element is in exactly one, and all are equally long";
  const char* const bits = "update: weights equal those of one device, bit for bit";
  const char* const whole = "unit: weights are whole after gather, and have no memory after free_weights";
  const char* const ahead = "step: units are gathered ahead, in both directions";
  const char* const few = "step: at most 1 + prefetch units have weights";
  const char* const trains = "step: steps with micro-batches train what one device trains";
  add_answer("rounded_down", "The part is rounded down, so the last elements are in no shard.", each).shard_of =
      rounded_down;
  add_answer("part_of_each", "Each tensor is cut by itself, so a rank has a part of every one.", each).shard_of =
      part_of_each;
  add_answer("unset_padding", "The elements after the last one are not set.", each).shard_of = unset_padding;
  add_answer("flat_first", "The flat tensor is made, and then cut.", "shards: no memory besides the shard").shard_of =
      flat_first;
  add_answer("mean", "The sums are divided by the number of ranks, although each sample already weighs 1 / N.", bits)
      .sharded_update = update({.mean = true});
  add_answer("own_gradients", "Each rank updates its shard with its own gradient, which is not summed.", bits)
      .sharded_update = update({.own_gradients = true});
  add_answer("not_gathered", "The updated shards are not gathered.", bits).sharded_update =
      update({.not_gathered = true});
  add_answer("all_momentum", "Each rank keeps the momentum of all weights, and uses its part.",
             "update: each rank keeps the momentum of its shard only")
      .sharded_update = update({.all_momentum = true});
  add_answer("all_reduces", "An all-reduce sums what a reduce-scatter would, with twice the bytes.",
             "update: one reduce-scatter and one all-gather")
      .sharded_update = update({.all_reduces = true});
  add_answer("free_a_copy", "A copy of the weights is freed, and the parameters keep theirs.", whole).free_weights =
      free_a_copy;
  add_answer("gather_again", "Weights that are whole are gathered again.", whole).gather = gather_again;
  add_answer("gather_if_needed", "A rank whose shard has only zeros leaves out the gather.", whole).gather =
      gather_if_needed;
  add_answer("gather_into_new_tensors", "The parameters become views of a new tensor, of which graphs know nothing.",
             "unit: a graph from before free_weights can use them after another gather")
      .gather = gather_into_new_tensors;
  add_answer("reduce_anew", "Each reduction overwrites the gradient of the micro-batches before.",
             "unit: reduce adds the sums over the ranks to the shard's gradient")
      .reduce = reduce_anew;
  add_answer("reduce_and_keep", "The parameters keep their gradients.", "unit: reduce frees the whole gradients")
      .reduce = reduce_and_keep;
  add_step("no_prefetch", "Each unit is gathered when it is needed.", ahead, {.no_prefetch = true});
  add_step("only_forward_prefetch", "The backward gathers the unit after the one that computes, not the one before.",
           ahead, {.only_forward_prefetch = true});
  add_step("gathers_all", "All units are gathered at once.", few, {.gathers_all = true});
  add_step("keeps_weights", "Weights are kept from the forward to the backward.", few, {.keeps_weights = true});
  add_step("reduces_at_end", "All gradients are reduced at the end of the backward.",
           "step: one unit at a time has whole gradients", {.reduces_at_end = true});
  add_step("reduces_first", "A unit is reduced before the next ones are gathered, for which the backward waits.",
           "step: gathers go ahead of the reduction", {.reduces_first = true});
  add_step("frees_last", "The last unit is freed after its forward, and gathered again at once.",
           "step: the last unit is not gathered twice", {.frees_last = true});
  add_step("first_unit_stays", "The first unit keeps its weights for the next step, which changes them.", trains,
           {.first_unit_stays = true});
  add_step("first_unit_forgotten", "The end of the backward does not reduce the first unit.", trains,
           {.first_unit_forgotten = true});
  return answers;
}

}  // namespace stagecoach::labs::lab9
