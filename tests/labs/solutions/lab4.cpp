/// @file
/// A solution of lab 4.

#include <algorithm>

#include "chapters/04_pipedream/lab/one_f_one_b.h"
#include "chapters/04_pipedream/lab/version_store.h"
#include "parallel/schedule/rank_actions.h"

namespace stagecoach::lab {
namespace {

/// Frees a version that is not the newest and that no micro-batch in flight uses.
void free_unneeded(VersionStore& store) {
  const int newest = store.versions.rbegin()->first;
  std::erase_if(store.versions, [&](const auto& kept) {
    const int version = kept.first;
    const bool is_used = std::any_of(store.in_flight.begin(), store.in_flight.end(),
                                     [&](const auto& flight) { return flight.second == version; });
    return version != newest && !is_used;
  });
}

}  // namespace

/// A rank that has k micro-batches in flight runs the forward of micro-batch i + k only after the backward of i. So the
/// next rank, if it wanted k + 1 in flight, would wait for that forward before the backward of i, for which the first
/// rank waits: a circle. A rank may not hold more than any rank before it.
Schedule one_f_one_b(int microbatches, const std::vector<int>& limits) {
  const int p = static_cast<int>(limits.size());
  const int m = microbatches;
  int held = p;  // micro-batches in flight
  return for_each_rank(empty_schedule(p, m), [&](RankActions rank, int r) {
    held = std::min({held, limits[static_cast<std::size_t>(r)], p - r});
    const int warm_up = std::min(held - 1, m);
    for (int i = 0; i < warm_up; ++i) {
      rank.forward(r, i);
    }
    for (int i = warm_up; i < m; ++i) {
      rank.forward(r, i);
      rank.backward(r, i - warm_up);
    }
    for (int i = m - warm_up; i < m; ++i) {
      rank.backward(r, i);
    }
  });
}

Tensor weights_for_forward(VersionStore& store, int microbatch) {
  const auto& [version, weights] = *store.versions.rbegin();
  store.in_flight[microbatch] = version;
  return weights;
}

Tensor weights_for_backward(VersionStore& store, int microbatch) {
  const Tensor weights = store.versions.at(store.in_flight.at(microbatch));
  store.in_flight.erase(microbatch);
  free_unneeded(store);
  return weights;
}

void update(VersionStore& store, const Tensor& gradient, double rate) {
  const auto& [version, weights] = *store.versions.rbegin();
  store.versions[version + 1] = updated(weights, gradient, rate);
  free_unneeded(store);
}

}  // namespace stagecoach::lab
