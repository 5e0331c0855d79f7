#pragma once
/// @file
/// The ranks that compute layers together.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/kernels/costs.h"
#include "parallel/comm/comm_thread.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/link.h"

namespace stagecoach {

/// What a layer exchanges for one micro-batch: so many rings in its forward and in its backward, each over a tensor of
/// `numel` elements. An all-gather or a reduce-scatter is one ring, an all-reduce is two.
struct Exchange {
  int forward = 0;
  int backward = 0;
  std::int64_t numel = 0;
  std::optional<KernelCost> beside = {};  ///< what a rank with a CommThread computes beside the backward's rings
  bool of_weights = false;                ///< the backward's rings sum gradients of parameters
};

/// Returns the seconds of one ring of `exchange`, among `ranks` ranks with float32 elements.
inline double ring_seconds(const Exchange& exchange, const Link& link, int ranks) {
  return ring_reduce_scatter_seconds(link, ranks, static_cast<double>(exchange.numel) * sizeof(float));
}

/// A group of ranks, as seen by one of them.
struct TensorGroup {
  int ranks = 1;
  int rank = 0;
  Communicator* comm = nullptr;  ///< null: this rank runs alone, for a plan, and exchanges nothing
  std::shared_ptr<std::vector<Exchange>> exchanges = nullptr;  ///< see TensorParallelLayers
  CommThread* comm_thread = nullptr;  ///< for sums in the backward that overlap with other work; null: none do
  bool plans_overlap = false;         ///< a rank that runs alone does the work of one with a CommThread
};

}  // namespace stagecoach
