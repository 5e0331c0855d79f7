#pragma once
/// @file
/// Lab 9, part 2: a unit, which is layers whose weights are gathered, used and freed together.

#include <memory>
#include <vector>

#include "nn/sequential.h"
#include "parallel/comm/communicator.h"

namespace stagecoach::lab {

/// One rank's side of a unit. All but the last two members are filled in when you get it, with the weights freed.
struct Unit {
  std::shared_ptr<Sequential> layers;
  std::vector<Tensor> parameters;  ///< of `layers`: views of `weights`, one after another
  Tensor weights;                  ///< [ranks part]: flat, with zeros at the end; without memory while they are freed
  Tensor shard;                    ///< [part]: this rank's part of the weights, which the optimizer updates
  bool has_weights = false;        ///< yours to use
  Tensor gradient = {};            ///< [part]: of the shard; the optimizer takes it, and then makes it undefined again
};

// All ranks call gather() and reduce() together, also those whose shard has only zeros.

/// Makes the weights whole: fills them with the shards of all ranks. Does nothing if they are whole already. The
/// parameters remain views of the same storage, so that graphs that saved them before free_weights() can use them
/// again.
void gather(Unit& unit, Communicator& comm);

/// Frees the memory of the weights, also for graphs that saved the parameters.
void free_weights(Unit& unit);

/// Sums the parameters' gradients, which are those of this rank's samples, over all ranks. Adds the sums for this
/// rank's shard to `gradient`, or makes them the gradient if it is undefined. Then no parameter has a gradient, and
/// nothing but [part] is left in memory. Every parameter has a gradient when it is called. It sends one message.
void reduce(Unit& unit, Communicator& comm);

}  // namespace stagecoach::lab
