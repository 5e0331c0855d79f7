/// @file
/// A solution of lab 6.

#include <algorithm>

#include "chapters/06_ddp/lab/assign_buckets.h"
#include "chapters/06_ddp/lab/reducer.h"
#include "core/base/error.h"

namespace stagecoach::lab {
namespace {

/// The position of a parameter: its bucket, and in the bucket's tensor its first number and its mark of use.
struct Position {
  std::size_t bucket = 0;
  std::int64_t first = 0;
  std::int64_t mark = 0;
};

std::int64_t numbers_of(const Reducer& reducer, std::size_t bucket) {
  std::int64_t numbers = 0;
  for (const std::size_t parameter : reducer.layout[bucket]) {
    numbers += reducer.sizes[parameter];
  }
  return numbers;
}

Position position_of(const Reducer& reducer, std::size_t parameter) {
  for (std::size_t bucket = 0; bucket < reducer.layout.size(); ++bucket) {
    const auto& members = reducer.layout[bucket];
    const auto found = std::find(members.begin(), members.end(), parameter);
    if (found == members.end()) {
      continue;
    }
    Position position{.bucket = bucket, .mark = numbers_of(reducer, bucket) + (found - members.begin())};
    for (auto before = members.begin(); before != found; ++before) {
      position.first += reducer.sizes[*before];
    }
    return position;
  }
  fail("expected a parameter of the layout, got another one");
}

/// Counts the parameter as complete, and sums the buckets whose turn has come.
void mark_ready(Reducer& reducer, std::size_t parameter, Communicator& comm) {
  reducer.is_ready[parameter] = true;
  --reducer.missing[position_of(reducer, parameter).bucket];
  while (reducer.launched < reducer.layout.size() && reducer.missing[reducer.launched] == 0) {
    comm.all_reduce(reducer.flat[reducer.launched++]);
  }
}

}  // namespace

BucketLayout assign_buckets(const std::vector<std::size_t>& bytes, std::size_t first_cap, std::size_t cap) {
  BucketLayout buckets;
  std::size_t filled = 0;  // bytes in the last bucket
  for (std::size_t parameter = bytes.size(); parameter-- > 0;) {
    const std::size_t most = buckets.size() <= 1 ? first_cap : cap;
    if (buckets.empty() || filled + bytes[parameter] > most) {
      buckets.emplace_back();
      filled = 0;
    }
    buckets.back().push_back(parameter);
    filled += bytes[parameter];
  }
  return buckets;
}

void start_step(Reducer& reducer, const std::vector<std::size_t>& unused, Communicator& comm) {
  reducer.flat.clear();
  reducer.missing.clear();
  for (std::size_t bucket = 0; bucket < reducer.layout.size(); ++bucket) {
    const auto count = static_cast<std::int64_t>(reducer.layout[bucket].size());
    reducer.flat.push_back(Tensor::zeros({numbers_of(reducer, bucket) + count}, DType::float32, comm.device()));
    reducer.missing.push_back(static_cast<int>(count));
  }
  reducer.is_ready.assign(reducer.sizes.size(), false);
  reducer.launched = 0;
  for (const std::size_t parameter : unused) {
    mark_ready(reducer, parameter, comm);  // zeros, and the mark 0
  }
}

void gradient_ready(Reducer& reducer, std::size_t parameter, const Tensor& gradient, Communicator& comm) {
  const Position position = position_of(reducer, parameter);
  const Tensor& flat = reducer.flat[position.bucket];
  flat.narrow(position.first, reducer.sizes[parameter]).copy_from(gradient);
  flat.narrow(position.mark, 1).fill(1);
  mark_ready(reducer, parameter, comm);
}

std::vector<Tensor> finish_step(Reducer& reducer, Communicator& /*comm*/) {
  std::vector<Tensor> sums;
  for (std::size_t parameter = 0; parameter < reducer.sizes.size(); ++parameter) {
    STAGECOACH_CHECK(reducer.is_ready[parameter],
                     "expected a gradient of parameter {}, or that it is announced as unused; got neither", parameter);
    const Position position = position_of(reducer, parameter);
    const Tensor& flat = reducer.flat[position.bucket];
    const bool is_used = flat.data<float>()[position.mark] > 0;
    sums.push_back(is_used ? flat.narrow(position.first, reducer.sizes[parameter]) : Tensor());
  }
  return sums;
}

}  // namespace stagecoach::lab
