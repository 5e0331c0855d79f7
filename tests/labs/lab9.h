#pragma once
/// @file
/// The grader of lab 9: an update that is cut over the ranks, and units whose weights come and go.

#include <functional>
#include <vector>

#include "chapters/09_sharded_data_parallel/lab/step.h"
#include "tests/labs/grading.h"

namespace stagecoach::labs::lab9 {

/// The functions that the student writes; see chapters/09_sharded_data_parallel/lab/.
struct Answer {
  std::function<Tensor(const std::vector<Tensor>& tensors, int rank, int ranks)> shard_of;
  std::function<void(Tensor& weights, const Tensor& gradients, Tensor& velocity, Communicator& comm)> sharded_update;
  std::function<void(lab::Unit& unit, Communicator& comm)> gather;
  std::function<void(lab::Unit& unit)> free_weights;
  std::function<void(lab::Unit& unit, Communicator& comm)> reduce;
  std::function<Tensor(lab::ShardedModel& model, const Tensor& x, Communicator& comm)> forward;
  std::function<void(lab::ShardedModel& model, int u, Communicator& comm)> reach;
};

std::vector<Criterion> criteria(const Answer& answer);

}  // namespace stagecoach::labs::lab9
