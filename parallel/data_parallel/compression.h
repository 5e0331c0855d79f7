#pragma once
/// @file
/// Gradient compression: how a bucket of gradients is sent to the other ranks. Each function here returns a
/// ReduceBucket (buckets.h); `make_compression` chooses one by kind.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "parallel/data_parallel/buckets.h"

namespace stagecoach {

/// Sends gradients as they are; the sum is exact.
ReduceBucket plain_sum();

/// Sends float32 as float16, which halves the bytes, and adds in float32. Each value is rounded to 11 significant bits
/// when it is sent, and the sum once more when it is returned. Values beyond 65504 become infinite and values below
/// 2^-25 are lost, as in PyTorch's fp16_compress_hook: the gradients of a mean over a large batch may need loss
/// scaling.
ReduceBucket half_precision();

/// The state that a compression keeps on a rank from step to step, by name. It may be saved and restored between steps.
using CompressionMemory = std::map<std::string, Tensor>;

/// Sends a gradient of [n, …], viewed as a matrix [n, m], as a product of [n, r] and [r, m]: r (n + m) numbers instead
/// of n m. Each rank keeps what its contribution loses and adds it to the next gradient (error feedback), so nothing is
/// lost forever. A gradient that has one dimension, or that would not become smaller, is sent as it is. A bucket takes
/// two messages. `columns` is r, which the paper calls the rank of the compression. Throws UsageError if it is less
/// than 1. Source: Vogels, Karimireddy and Jaggi, "PowerSGD: practical low-rank gradient compression for distributed
/// optimization", 2019, section 3, algorithms 1 and 2.
///
/// `memory` holds the state of each parameter: NAME.error [n, m], the accumulated error, and NAME.q [r, m], the
/// directions for the next step; together these are more numbers than the gradients have. Copies of the function share
/// the memory, so each rank makes a function of its own, with the same arguments on all ranks, and uses it on one
/// thread at a time. `seed` determines the initial directions.
ReduceBucket power_sgd(int columns, std::uint64_t seed = 0,
                       std::shared_ptr<CompressionMemory> memory = std::make_shared<CompressionMemory>());

/// A gradient compression and its state, for one rank.
struct Compression {
  ReduceBucket reduce;
  std::shared_ptr<CompressionMemory> memory;  ///< null if the compression has no state
};

/// plain_sum, half_precision, and power_sgd with 4 columns.
enum class CompressionKind { none, half, powersgd };

/// Returns the names of the kinds, in this order.
const std::vector<std::string>& compression_names();
Compression make_compression(CompressionKind kind);

}  // namespace stagecoach
