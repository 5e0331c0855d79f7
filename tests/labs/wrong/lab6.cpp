/// @file
/// Wrong answers to lab 6. Each differs from the solution (tests/labs/solutions/lab6.cpp) in one thing.

#include "tests/labs/wrong/lab6.h"

#include <algorithm>
#include <numeric>

#include "core/ops.h"

namespace stagecoach::labs::lab6 {
namespace {

using lab::BucketLayout;
using lab::Reducer;
using Bytes = std::vector<std::size_t>;
using Unused = std::vector<std::size_t>;

// Part 1.

BucketLayout first_to_last(const Bytes& bytes, std::size_t first_cap, std::size_t cap) {
  const Bytes reversed(bytes.rbegin(), bytes.rend());
  BucketLayout buckets = lab::assign_buckets(reversed, first_cap, cap);
  for (auto& bucket : buckets) {
    for (std::size_t& parameter : bucket) {
      parameter = bytes.size() - 1 - parameter;
    }
  }
  return buckets;
}

/// Closes a bucket after the parameter that reaches the cap, as the library does.
BucketLayout closed_after_the_cap(const Bytes& bytes, std::size_t first_cap, std::size_t cap) {
  BucketLayout buckets;
  bool is_open = false;
  std::size_t filled = 0;
  for (std::size_t parameter = bytes.size(); parameter-- > 0;) {
    if (!is_open) {
      buckets.emplace_back();
      filled = 0;
    }
    buckets.back().push_back(parameter);
    filled += bytes[parameter];
    is_open = filled < (buckets.size() == 1 ? first_cap : cap);
  }
  return buckets;
}

BucketLayout first_cap_for_all(const Bytes& bytes, std::size_t first_cap, std::size_t /*cap*/) {
  return lab::assign_buckets(bytes, first_cap, first_cap);
}

BucketLayout one_for_each_parameter(const Bytes& bytes, std::size_t /*first_cap*/, std::size_t /*cap*/) {
  return lab::assign_buckets(bytes, 0, 0);
}

/// Begins with a bucket, and closes it even if it is empty.
BucketLayout empty_bucket_before_a_large_one(const Bytes& bytes, std::size_t first_cap, std::size_t cap) {
  BucketLayout buckets{{}};
  std::size_t filled = 0;
  for (std::size_t parameter = bytes.size(); parameter-- > 0;) {
    if (filled + bytes[parameter] > (buckets.size() == 1 ? first_cap : cap)) {
      buckets.emplace_back();
      filled = 0;
    }
    buckets.back().push_back(parameter);
    filled += bytes[parameter];
  }
  return buckets;
}

// Part 2.

std::size_t bucket_of(const Reducer& reducer, std::size_t parameter) {
  std::size_t bucket = 0;
  while (std::find(reducer.layout[bucket].begin(), reducer.layout[bucket].end(), parameter) ==
         reducer.layout[bucket].end()) {
    ++bucket;
  }
  return bucket;
}

std::int64_t numbers_of(const Reducer& reducer, std::size_t bucket) {
  return std::accumulate(reducer.layout[bucket].begin(), reducer.layout[bucket].end(), std::int64_t{0},
                         [&](std::int64_t sum, std::size_t parameter) { return sum + reducer.sizes[parameter]; });
}

/// Copies the gradient into its bucket and marks the parameter as used.
void put(Reducer& reducer, std::size_t parameter, const Tensor& gradient) {
  const std::size_t bucket = bucket_of(reducer, parameter);
  std::int64_t first = 0;
  std::int64_t mark = numbers_of(reducer, bucket);
  for (const std::size_t member : reducer.layout[bucket]) {
    if (member == parameter) {
      break;
    }
    first += reducer.sizes[member];
    ++mark;
  }
  reducer.flat[bucket].narrow(first, reducer.sizes[parameter]).copy_from(gradient);
  reducer.flat[bucket].narrow(mark, 1).fill(1);
}

/// Sums each bucket as soon as it is full, whichever it is.
void buckets_by_readiness(Reducer& reducer, std::size_t parameter, const Tensor& gradient, Communicator& comm) {
  put(reducer, parameter, gradient);
  reducer.is_ready[parameter] = true;
  const std::size_t bucket = bucket_of(reducer, parameter);
  if (--reducer.missing[bucket] == 0) {
    comm.all_reduce(reducer.flat[bucket]);
  }
}

/// Sums at most one bucket: those that are complete already and come after it wait for the next gradient.
void one_bucket_per_gradient(Reducer& reducer, std::size_t parameter, const Tensor& gradient, Communicator& comm) {
  put(reducer, parameter, gradient);
  reducer.is_ready[parameter] = true;
  --reducer.missing[bucket_of(reducer, parameter)];
  if (reducer.launched < reducer.layout.size() && reducer.missing[reducer.launched] == 0) {
    comm.all_reduce(reducer.flat[reducer.launched++]);
  }
}

/// Leaves all sums to the end of the step.
void only_counted(Reducer& reducer, std::size_t parameter, const Tensor& gradient, Communicator& /*comm*/) {
  put(reducer, parameter, gradient);
  reducer.is_ready[parameter] = true;
  --reducer.missing[bucket_of(reducer, parameter)];
}
std::vector<Tensor> sums_at_the_end(Reducer& reducer, Communicator& comm) {
  while (reducer.launched < reducer.layout.size() && reducer.missing[reducer.launched] == 0) {
    comm.all_reduce(reducer.flat[reducer.launched++]);
  }
  return lab::finish_step(reducer, comm);
}

/// Sums each gradient by itself too.
void message_for_each_gradient(Reducer& reducer, std::size_t parameter, const Tensor& gradient, Communicator& comm) {
  Tensor sum = gradient.clone();
  comm.all_reduce(sum);
  lab::gradient_ready(reducer, parameter, gradient, comm);
}

void unused_not_announced(Reducer& reducer, const Unused& /*unused*/, Communicator& comm) {
  lab::start_step(reducer, {}, comm);
}

/// Counts unused parameters as ready, but looks for full buckets only when a gradient comes.
void unused_launch_nothing(Reducer& reducer, const Unused& unused, Communicator& comm) {
  lab::start_step(reducer, {}, comm);
  for (const std::size_t parameter : unused) {
    reducer.is_ready[parameter] = true;
    --reducer.missing[bucket_of(reducer, parameter)];
  }
}

/// An unused parameter is marked as used with zeros.
void unused_marked_as_used(Reducer& reducer, const Unused& unused, Communicator& comm) {
  lab::start_step(reducer, {}, comm);
  for (const std::size_t parameter : unused) {
    lab::gradient_ready(reducer, parameter, Tensor::zeros({reducer.sizes[parameter]}, DType::float32, comm.device()),
                        comm);
  }
}

std::vector<Tensor> mean_of_ranks(Reducer& reducer, Communicator& comm) {
  std::vector<Tensor> sums = lab::finish_step(reducer, comm);
  for (Tensor& sum : sums) {
    if (sum.defined()) {
      sum = scale(sum, 1.0 / comm.size());
    }
  }
  return sums;
}

/// Every parameter gets a tensor, with zeros if no rank used it.
std::vector<Tensor> zeros_for_all_unused(Reducer& reducer, Communicator& comm) {
  std::vector<Tensor> sums = lab::finish_step(reducer, comm);
  for (std::size_t parameter = 0; parameter < sums.size(); ++parameter) {
    if (!sums[parameter].defined()) {
      sums[parameter] = Tensor::zeros({reducer.sizes[parameter]}, DType::float32, comm.device());
    }
  }
  return sums;
}

/// Takes a parameter to be used only if at least two ranks used it: the mark of one is taken for a rounding error.
std::vector<Tensor> used_by_two_ranks(Reducer& reducer, Communicator& comm) {
  std::vector<Tensor> sums = lab::finish_step(reducer, comm);
  for (std::size_t parameter = 0; parameter < sums.size(); ++parameter) {
    const std::size_t bucket = bucket_of(reducer, parameter);
    const auto& members = reducer.layout[bucket];
    const auto place = std::find(members.begin(), members.end(), parameter) - members.begin();
    if (reducer.flat[bucket].data<float>()[numbers_of(reducer, bucket) + place] < 1.5F) {
      sums[parameter] = Tensor();
    }
  }
  return sums;
}

/// Sums who used what in a message of its own.
std::vector<Tensor> uses_in_a_message(Reducer& reducer, Communicator& comm) {
  const std::vector<double> used(reducer.sizes.size(), 1);
  static_cast<void>(comm.sum_numbers(used));
  return lab::finish_step(reducer, comm);
}

/// Sets the counts up only before the first step.
void state_of_the_first_step(Reducer& reducer, const Unused& unused, Communicator& comm) {
  if (reducer.flat.empty()) {
    lab::start_step(reducer, unused, comm);
  }
}

/// Takes a gradient that never came as zeros.
std::vector<Tensor> missing_as_zeros(Reducer& reducer, Communicator& comm) {
  reducer.is_ready.assign(reducer.sizes.size(), true);
  while (reducer.launched < reducer.layout.size()) {
    comm.all_reduce(reducer.flat[reducer.launched++]);
  }
  return lab::finish_step(reducer, comm);
}

/// Returns what has been summed, and does not ask whether anything is missing.
std::vector<Tensor> nothing_is_missing(Reducer& reducer, Communicator& comm) {
  reducer.is_ready.assign(reducer.sizes.size(), true);
  return lab::finish_step(reducer, comm);
}

Answer solution() { return {lab::assign_buckets, lab::start_step, lab::gradient_ready, lab::finish_step}; }

Answer with_buckets(BucketLayout (*assign_buckets)(const Bytes&, std::size_t, std::size_t)) {
  Answer answer = solution();
  answer.assign_buckets = assign_buckets;
  return answer;
}
Answer with_start(void (*start_step)(Reducer&, const Unused&, Communicator&)) {
  Answer answer = solution();
  answer.start_step = start_step;
  return answer;
}
Answer with_gradient(void (*gradient_ready)(Reducer&, std::size_t, const Tensor&, Communicator&)) {
  Answer answer = solution();
  answer.gradient_ready = gradient_ready;
  return answer;
}
Answer with_finish(std::vector<Tensor> (*finish_step)(Reducer&, Communicator&)) {
  Answer answer = solution();
  answer.finish_step = finish_step;
  return answer;
}

constexpr const char* kEachOnce = "buckets: every parameter once, from the last to the first";
constexpr const char* kCaps = "buckets: none is larger than its cap, except for one parameter alone";
constexpr const char* kFit = "buckets: each takes as many parameters as fit";
constexpr const char* kSums = "reducer: gradients are summed over the ranks";
constexpr const char* kOrder = "reducer: all ranks sum the same buckets, in whatever order gradients come";
constexpr const char* kAtOnce = "reducer: a bucket is summed as soon as it is complete";
constexpr const char* kMessages = "reducer: one message per bucket, and no other";
constexpr const char* kUnusedOnSome = "reducer: a parameter unused on some ranks counts as zeros";
constexpr const char* kUnusedOnAll = "reducer: a parameter unused on all ranks has no gradient";
constexpr const char* kMissing = "reducer: a gradient that never comes is an error, not a wait";

}  // namespace

std::vector<WrongAnswer<Answer>> wrong_answers() {
  return {
      {"first_to_last", "Buckets begin with the first parameter, whose gradient comes last.", kEachOnce,
       with_buckets(first_to_last)},
      {"empty_bucket", "A parameter that is too large for the first bucket leaves it empty.", kEachOnce,
       with_buckets(empty_bucket_before_a_large_one)},
      {"closed_after_the_cap", "A bucket is closed after the parameter that reaches the cap, so it is larger.", kCaps,
       with_buckets(closed_after_the_cap)},
      {"first_cap_for_all", "The cap of the first bucket is used for all.", kFit, with_buckets(first_cap_for_all)},
      {"one_for_each_parameter", "Each parameter has a bucket of its own.", kFit, with_buckets(one_for_each_parameter)},
      {"mean_of_ranks", "The sums are divided by the number of ranks, although each image already weighs 1 / N.", kSums,
       with_finish(mean_of_ranks)},
      {"buckets_by_readiness", "Buckets are summed in the order in which they are full, which differs between ranks.",
       kOrder, with_gradient(buckets_by_readiness)},
      {"one_bucket_per_gradient", "After a gradient, only one bucket is summed, although several may have waited.",
       kOrder, with_gradient(one_bucket_per_gradient)},
      {"sums_at_the_end",
       "All buckets are summed at the end of the step, when nothing is left to hide them.",
       kAtOnce,
       {lab::assign_buckets, lab::start_step, only_counted, sums_at_the_end}},
      {"message_for_each_gradient", "Each gradient is summed by itself as well.", kMessages,
       with_gradient(message_for_each_gradient)},
      {"uses_in_a_message", "Who uses what is summed in a message of its own.", kMessages,
       with_finish(uses_in_a_message)},
      {"unused_forgotten", "Unused parameters are forgotten, and their buckets wait for them.", kUnusedOnSome,
       with_start(unused_not_announced)},
      {"unused_wait_forever",
       "Unused parameters are never counted off, and nobody notices: the other ranks wait forever.",
       kUnusedOnSome,
       {lab::assign_buckets, unused_not_announced, lab::gradient_ready, nothing_is_missing}},
      {"unused_launch_nothing", "A bucket that unused parameters complete is summed only after the next gradient.",
       kUnusedOnSome, with_start(unused_launch_nothing)},
      {"used_by_two_ranks", "A parameter counts as used only if at least two ranks used it.", kUnusedOnSome,
       with_finish(used_by_two_ranks)},
      {"unused_marked_as_used", "Unused parameters are marked as used, with zeros.", kUnusedOnAll,
       with_start(unused_marked_as_used)},
      {"zeros_for_all_unused", "A parameter that no rank used gets zeros, so that momentum moves it.", kUnusedOnAll,
       with_finish(zeros_for_all_unused)},
      {"state_of_the_first_step", "The counts are set up before the first step only.",
       "reducer: steps follow each other", with_start(state_of_the_first_step)},
      {"missing_as_zeros", "A gradient that never came counts as zeros.", kMissing, with_finish(missing_as_zeros)},
  };
}

}  // namespace stagecoach::labs::lab6
