/// @file
/// The mechanism of bucketed gradient reduction, in the order in which it happens.

#include "parallel/data_parallel/buckets.h"

#include <map>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "parallel/data_parallel/flat.h"

namespace stagecoach {

// Before training: parameters are assigned to buckets.

std::vector<std::size_t> reverse_order(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return order;
}

namespace {

bool is_full(std::size_t bytes, bool is_first, const BucketCaps& caps) {
  return bytes >= (is_first ? caps.first : caps.rest);
}

}  // namespace

BucketLayout bucket_layout(const NamedTensors& parameters, const std::vector<std::size_t>& order,
                           const BucketCaps& caps, const std::vector<int>& parts) {
  struct Open {
    std::size_t bucket;
    std::size_t bytes;
  };
  BucketLayout layout;
  std::map<std::pair<int, DType>, Open> open;  // one bucket per part and type of elements
  for (const std::size_t i : order) {
    const Tensor& parameter = parameters[i].second;
    const std::pair key(parts.empty() ? 0 : parts[i], parameter.dtype());
    const auto [found, is_new] = open.try_emplace(key, Open{layout.size(), 0});
    if (is_new) {
      layout.emplace_back();
    }
    auto& [bucket, bytes] = found->second;
    layout[bucket].push_back(i);
    bytes += parameter.bytes();
    if (is_full(bytes, bucket == 0, caps)) {
      open.erase(found);
    }
  }
  return layout;
}

double reduction_seconds(const std::vector<std::int64_t>& bytes, const BucketCaps& caps, const Link& link, int ranks) {
  double seconds = 0;
  std::size_t bucket = 0;
  const auto reduce = [&] { seconds += ring_all_reduce_seconds(link, ranks, static_cast<double>(bucket)); };
  for (bool is_first = true; const std::int64_t gradient : bytes) {
    bucket += static_cast<std::size_t>(gradient);
    if (is_full(bucket, is_first, caps)) {
      reduce();
      bucket = 0;
      is_first = false;
    }
  }
  if (bucket > 0) {
    reduce();
  }
  return seconds;
}

Buckets::Buckets(NamedTensors parameters, Communicator& comm, const BucketCaps& caps, ReduceBucket reduce)
    : parameters_(std::move(parameters)),
      caps_(caps),
      reduce_(std::move(reduce)),
      slots_(parameters_.size()),
      comm_thread_(comm) {
  lay_out(reverse_order(parameters_.size()));
}

void Buckets::lay_out(const std::vector<std::size_t>& order, const std::vector<int>& parts) {
  buckets_.clear();
  for (const std::vector<std::size_t>& members : bucket_layout(parameters_, order, caps_, parts)) {
    Bucket bucket{static_cast<int>(buckets_.size())};
    std::vector<Tensor> parameters;
    for (const std::size_t i : members) {
      slots_[i] = {.bucket = buckets_.size(), .index = parameters.size()};
      bucket.names.push_back(parameters_[i].first);
      parameters.push_back(parameters_[i].second);
    }
    bucket.flat = flat_for(parameters);
    bucket.gradients = views_of(bucket.flat, parameters);
    buckets_.push_back(std::move(bucket));
    for (const std::size_t i : members) {
      if (parameters_[i].second.grad().defined()) {
        take_gradient(i);
      }
    }
  }
}

// In a step: gradients arrive, and full buckets are reduced while the backward continues.

void Buckets::start() {
  launched_.clear();
  missing_.clear();
  for (const Bucket& bucket : buckets_) {
    missing_.push_back(bucket.names.size());
  }
  for (Slot& slot : slots_) {
    slot.ready = false;
  }
}

/// As the gradient is a view of the bucket, sums need no copy back, and later backwards accumulate directly into the
/// bucket.
void Buckets::take_gradient(std::size_t i) {
  Tensor parameter = parameters_[i].second;
  Tensor view = gradient(i);
  if (!parameter.grad().is_same(view)) {
    view.copy_from(parameter.grad());
    parameter.set_grad(view);
  }
}

void Buckets::mark_ready(std::size_t i) {
  Slot& slot = slots_[i];
  STAGECOACH_CHECK(!slot.ready,
                   "reducer: expected one gradient of '{}' per step, got a second one; use Sync::no for all backwards "
                   "of a step except the last",
                   parameters_[i].first);
  slot.ready = true;
  if (!parameters_[i].second.grad().defined()) {
    gradient(i).fill(0);
  }
  if (--missing_[slot.bucket] == 0) {
    launch_full_buckets();
  }
}

/// Starts reductions in the order of the buckets, even if a later bucket is full first: otherwise ranks might sum
/// different buckets.
void Buckets::launch_full_buckets() {
  while (launched_.size() < buckets_.size() && missing_[launched_.size()] == 0) {
    Bucket& bucket = buckets_[launched_.size()];
    launched_.push_back(
        comm_thread_.submit("reduce bucket", [this, &bucket](Communicator& comm) { reduce_(bucket, comm); }));
  }
}

// After the backward: the step waits for the sums.

std::vector<CommThread::Span> Buckets::wait() {
  std::vector<CommThread::Span> spans;
  for (const CommThread::Pending& reduction : launched_) {
    spans.push_back(reduction.wait());
  }
  launched_.clear();
  return spans;
}

Tensor Buckets::gradient(std::size_t i) const { return buckets_[slots_[i].bucket].gradients[slots_[i].index]; }

}  // namespace stagecoach
