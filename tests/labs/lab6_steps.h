#pragma once
/// @file
/// Steps of data parallel training for the grader of lab 6: ranks whose gradients come in different orders, and what
/// their sums should be.

#include <cstddef>
#include <string>
#include <vector>

#include "tests/labs/lab6.h"
#include "tests/labs/watched_collectives.h"

namespace stagecoach::labs::lab6 {

using Parameters = std::vector<std::size_t>;

/// What a rank does in a step.
struct RankStep {
  Parameters order;        ///< of its gradients
  Parameters unused = {};  ///< the parameters that it announces as unused
};
/// What all ranks do in a step: [ranks].
using Step = std::vector<RankStep>;

/// The model: the numbers of each parameter's gradient, and its buckets.
const std::vector<std::int64_t>& sizes();
const lab::BucketLayout& layout();
/// Returns the count of numbers of a bucket: its gradients, and one for each parameter.
std::int64_t count_of_bucket(std::size_t bucket);

/// Returns a step of `ranks` ranks in which all gradients come from the last parameter to the first.
Step in_reverse(int ranks);
/// Returns a step in which rank r begins elsewhere: later buckets are full before earlier ones.
Step in_different_orders(int ranks);
/// Returns `step` in which `rank` does not use `parameter`.
Step without(Step step, int rank, std::size_t parameter);
/// Returns "rank 0: 6, 5, 4, without 3; rank 1: …".
std::string to_string(const Step& step);

/// The sums of each step on a rank, as numbers; empty where the sum is an undefined tensor.
using Sums = std::vector<std::vector<float>>;
/// What came of it: [ranks][steps].
using Results = std::vector<std::vector<Sums>>;

/// Runs `steps`, one after the other, with the answer's functions. Calls are recorded in `collectives`; each is stamped
/// with 100 times the number of the step, plus the gradients of the step that the rank had given before or with the
/// call.
Results run_steps(const Answer& answer, const std::vector<Step>& steps, Collectives& collectives);
/// Returns what is said of the buckets, whose names follow from their counts of numbers.
Collectives::Texts bucket_texts();

/// Throws Failed unless all ranks have the sums of `steps`, added in the order of the ranks, bit for bit.
void require_sums(const Results& results, const std::vector<Step>& steps, const std::string& look_at);
/// Throws Failed unless each rank summed as many buckets in each step as there are.
void require_calls_in_each_step(const Collectives& collectives, const std::vector<Step>& steps,
                                const std::string& look_at);
/// Throws Failed unless each rank summed each bucket as soon as it and all before it were complete.
void require_launches(const Collectives& collectives, const std::vector<Step>& steps, const std::string& look_at);

}  // namespace stagecoach::labs::lab6
