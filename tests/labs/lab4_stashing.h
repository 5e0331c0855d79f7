#pragma once
/// @file
/// A small model, trained with weight stashing: once through the stores of a student, in the order of a pipeline, and
/// once in plain form by a sequential program that knows only the rule.

#include <functional>
#include <set>
#include <string>

#include "tests/labs/lab4.h"

namespace stagecoach::labs::lab4 {

struct StashedRun {
  int ranks;         ///< one stage on each
  int microbatches;  ///< a multiple of `batch`
  int batch;         ///< micro-batches per update
};
/// Returns "4 stages, with an update after every 2 micro-batches".
std::string to_string(const StashedRun& run);

/// The store of one stage after a call.
struct StoreState {
  const lab::VersionStore& store;
  std::set<int> needed;  ///< the versions that a store should keep now
  std::string reasons;   ///< "versions 0 (for micro-batches 1, 2), 1 (the newest)"
  std::string when;      ///< "the forward of micro-batch 3 on stage 1"
};

/// Trains in the order of PipeDream's schedule, with one store per stage, on this thread. Calls `see` after each call
/// of a store.
void train_stashed(const Answer& answer, const StashedRun& run, const std::function<void(const StoreState&)>& see);

/// Throws Failed that names the first update after which the newest weights differ in a bit from those of the
/// sequential program.
void require_equal_to_oracle(const Answer& answer, const StashedRun& run, const std::string& look_at);

}  // namespace stagecoach::labs::lab4
