#pragma once
/// @file
/// How a bucket of gradients travels to the other ranks: each function makes a ReduceBucket (buckets.h).
/// `make_compression` makes them.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "parallel/data_parallel/buckets.h"

namespace stagecoach {

/// Sends them as they are: the exact sum.
ReduceBucket plain_sum();

/// Sends float32 as float16, half the bytes, and adds them up in float32. Every value is rounded to 11 bits on the way
/// there, and the sum once more on the way back. Beyond 65504 it becomes infinite, and what is less than 2^-25 is lost,
/// as in PyTorch's fp16_compress_hook: the gradients of a mean over a large batch may need a scaled loss.
ReduceBucket half_precision();

/// What a compression keeps on a rank from step to step, by name. Between steps it may be saved, and put back.
using CompressionMemory = std::map<std::string, Tensor>;

/// Sends a gradient of [n, …], seen as a matrix [n, m], as the product of [n, r] and [r, m]: r (n + m) numbers in place
/// of n m. What a rank's contribution loses on the way is kept there and added to the next gradient, so that nothing is
/// lost forever. A gradient of one dimension, or for which this would not be less, is sent as it is. A bucket takes
/// two messages. `columns` is r; the paper calls it the rank of the compression. Throws UsageError if it is less
/// than 1. Source: Vogels, Karimireddy and Jaggi, "PowerSGD: practical low-rank gradient compression for distributed
/// optimization", 2019, section 3, algorithms 1 and 2.
///
/// What it remembers of a parameter is in `memory`: NAME.error [n, m], what was lost, and NAME.q [r, m], the directions
/// in which it looks next; together more numbers than the gradients have. Copies of the function share it. So each rank
/// makes one of its own, with the same arguments on all of them, and uses it on one thread at a time. `seed` chooses
/// the directions in which it looks at first.
ReduceBucket power_sgd(int columns, std::uint64_t seed = 0,
                       std::shared_ptr<CompressionMemory> memory = std::make_shared<CompressionMemory>());

/// A way to send gradients, of one rank.
struct Compression {
  ReduceBucket reduce;
  std::shared_ptr<CompressionMemory> memory;  ///< null if it keeps nothing
};

/// plain_sum, half_precision, and power_sgd with 4 columns.
enum class CompressionKind { none, half, powersgd };

/// Their names, in this order.
const std::vector<std::string>& compression_names();
Compression make_compression(CompressionKind kind);

}  // namespace stagecoach
