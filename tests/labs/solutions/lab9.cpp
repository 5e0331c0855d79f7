/// @file
/// A solution of lab 9.

#include <algorithm>

#include "chapters/09_sharded_data_parallel/lab/sharded_update.h"
#include "chapters/09_sharded_data_parallel/lab/step.h"
#include "core/ops.h"
#include "parallel/data_parallel/flat.h"
#include "parallel/data_parallel/sharded/before_backward.h"

namespace stagecoach::lab {

Tensor shard_of(const std::vector<Tensor>& tensors, int rank, int ranks) {
  std::int64_t count = 0;
  for (const Tensor& tensor : tensors) {
    count += tensor.numel();
  }
  const std::int64_t part = (count + ranks - 1) / ranks;
  const std::int64_t first = rank * part;
  Tensor shard = Tensor::zeros({part}, DType::float32, tensors.front().device());
  std::int64_t offset = 0;  // of the tensor in the flat one
  for (const Tensor& tensor : tensors) {
    const std::int64_t begin = std::max(offset, first);
    const std::int64_t end = std::min(offset + tensor.numel(), first + part);
    if (begin < end) {
      shard.narrow(begin - first, end - begin).copy_from(tensor.reshape({-1}).narrow(begin - offset, end - begin));
    }
    offset += tensor.numel();
  }
  return shard;
}

void sharded_update(Tensor& weights, const Tensor& gradients, Tensor& velocity, Communicator& comm) {
  const Tensor gradient = comm.reduce_scatter(gradients);  // [part]
  const std::int64_t part = gradient.numel();
  if (!velocity.defined()) {
    velocity = Tensor::zeros({part}, DType::float32, comm.device());
  }
  const Tensor shard = weights.narrow(comm.rank() * part, part);
  sgd_step(shard, velocity, gradient);
  comm.all_gather_into(weights, shard);
}

void gather(Unit& unit, Communicator& comm) {
  if (unit.has_weights) {
    return;
  }
  Tensor whole = Tensor::empty(unit.weights.shape(), DType::float32, comm.device());
  comm.all_gather_into(whole, unit.shard);
  unit.weights.storage()->take_memory(*whole.storage());
  unit.has_weights = true;
}

void free_weights(Unit& unit) {
  unit.weights.storage()->drop_memory();
  unit.has_weights = false;
}

void reduce(Unit& unit, Communicator& comm) {
  std::vector<Tensor> gradients;
  for (Tensor& parameter : unit.parameters) {
    gradients.push_back(parameter.grad());
    parameter.zero_grad();
  }
  const Tensor sums = comm.reduce_scatter(padded(flattened(gradients), comm.size()));  // [part]
  unit.gradient = unit.gradient.defined() ? add(unit.gradient, sums) : sums;
}

namespace {

/// Gathers unit `first` and the units ahead of it in this direction.
void gather_from(ShardedModel& model, int first, int direction, Communicator& comm) {
  for (int ahead = 0; ahead <= model.prefetch; ++ahead) {
    if (const int u = first + ahead * direction; model.has(u)) {
      gather(model.unit(u), comm);
    }
  }
}

}  // namespace

Tensor forward(ShardedModel& model, const Tensor& x, Communicator& comm) {
  Tensor y = x;
  for (int u = 0; model.has(u); ++u) {
    gather_from(model, u, 1, comm);
    y = model.unit(u).layers->forward(y);
    if (model.has(u + 1)) {
      free_weights(model.unit(u));
    }
    y = before_backward(y, [&model, u, &comm] { reach(model, u, comm); });
  }
  return y;
}

void reach(ShardedModel& model, int u, Communicator& comm) {
  if (model.has(u + 1)) {
    free_weights(model.unit(u + 1));
  }
  gather_from(model, u, -1, comm);
  if (model.has(u + 1)) {
    reduce(model.unit(u + 1), comm);
  }
}

}  // namespace stagecoach::lab
