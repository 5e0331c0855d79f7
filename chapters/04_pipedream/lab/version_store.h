#pragma once
/// @file
/// Lab 4, part 2: the versions of a stage's weights, for weight stashing (--versions stash).

#include <map>

#include "core/ops.h"
#include "core/tensor.h"

namespace stagecoach::lab {

/// The weights of one stage. They begin as version 0, {.versions = {{0, weights}}}, and each update makes the next
/// version. After every call below, `versions` holds the newest version and those that a micro-batch in flight needs
/// (one that is between its forward and its backward), and no other. The grader counts them.
///
/// No schedule or ledger says what comes next. What has happened so far must suffice.
struct VersionStore {
  std::map<int, Tensor> versions = {};  ///< the versions kept, by number; the largest number is the newest
  std::map<int, int> in_flight = {};    ///< for each micro-batch in flight: the version that its forward used
};

/// Returns the weights for the forward of `microbatch`, which is in flight from now on.
Tensor weights_for_forward(VersionStore& store, int microbatch);

/// Returns the weights for the backward of `microbatch`, which is no longer in flight afterwards: the caller runs the
/// backward with the returned handle, and asks once per micro-batch. Several micro-batches may have used the same
/// version, if an update follows only every few of them.
Tensor weights_for_backward(VersionStore& store, int microbatch);

/// Makes the next version: the newest weights minus `rate` times `gradient`, computed by updated() below. Micro-batches
/// in flight keep theirs.
void update(VersionStore& store, const Tensor& gradient, double rate);

/// Given: returns weights - rate * gradient, in new storage. `weights` keeps its values.
inline Tensor updated(const Tensor& weights, const Tensor& gradient, double rate) {
  return add(weights, scale(gradient, -rate));
}

}  // namespace stagecoach::lab
