#pragma once
/// @file
/// Gradients of flat parameters (flat_parameters.h), in flat tensors of the same layout: whole, for this rank's
/// samples, until they are summed over the ranks.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "nn/named_tensors.h"
#include "parallel/comm/comm_thread.h"
#include "parallel/data_parallel/sharded/shard_groups.h"
#include "parallel/data_parallel/sharded/sharded_settings.h"

namespace stagecoach {

/// Where parameters are in a flat tensor [ranks part].
struct FlatLayout {
  std::int64_t ranks = 1;
  std::int64_t rank = 0;
  std::int64_t part = 0;                   ///< elements per rank
  std::int64_t used = 0;                   ///< elements before the zeros at the end
  std::vector<std::int64_t> offsets = {};  ///< of the parameters

  /// The layout of `parameters`, one after another, for this rank of `comm`.
  FlatLayout(const NamedTensors& parameters, const Communicator& comm);

  Shape flat() const { return {ranks * part}; }
  /// Returns this rank's shard of a flat tensor.
  Tensor own_part(const Tensor& flat) const { return flat.alias({part}, rank * part); }
  /// Returns the place of a tensor of this shape, parameter `index`, in a flat tensor.
  Tensor place(const Tensor& flat, std::size_t index, const Shape& shape) const {
    return flat.alias(shape, offsets[index]);
  }
};

/// All ranks call the same functions in the same order.
class FlatGradients {
 public:
  /// From now on backwards leave the gradients of `parameters` here. `layout` must outlive it.
  FlatGradients(NamedTensors parameters, const FlatLayout& layout, Sharded sharded, CompressionKind compress);
  ~FlatGradients();
  FlatGradients(const FlatGradients&) = delete;
  FlatGradients& operator=(const FlatGradients&) = delete;

  /// Starts to sum the gradients: over the ranks of a group, and then over the copies of the weights. Throws Error that
  /// names a parameter without one.
  void start_reduction(CommThread& thread, const ShardGroups& groups);
  /// Waits for the sums of this rank's shard, adds them to those of earlier reductions, and frees the whole gradients.
  void finish_reduction();
  /// Returns the sums [part], and no longer keeps them.
  Tensor take_sums() { return std::exchange(sums_, {}); }

 private:
  void take(std::size_t parameter);
  void reduce(const ShardGroups& groups);

  NamedTensors parameters_;
  const FlatLayout& layout_;
  Sharded sharded_;
  CompressionKind compress_;
  Tensor whole_;  // [ranks part]: of this rank's samples
  Tensor sums_;   // [part]: over all ranks
  std::optional<CommThread::Pending> reduction_;
};

}  // namespace stagecoach
