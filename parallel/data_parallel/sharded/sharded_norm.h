#pragma once
/// @file
/// The norm of gradients that are cut into shards, with the bits of one device: squares are added in blocks of the
/// whole parameter (core/kernels/fixed_order_sum.h). Most blocks are on one rank, which adds them. Of the others, which
/// an end of a shard cuts, the elements are collected first: at most one block per rank and unit.

#include <vector>

#include "parallel/data_parallel/sharded/flat_parameters.h"

namespace stagecoach {

/// Returns the sum of squares of each whole parameter's gradient, given `gradients`, those of flat.shards(). All ranks
/// of the group call it together. They send, besides the cut blocks, one number per block.
std::vector<double> sums_of_squares(const FlatParameters& flat, const std::vector<Tensor>& gradients,
                                    const ShardGroups& groups);

}  // namespace stagecoach
