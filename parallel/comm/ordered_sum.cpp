#include "parallel/comm/ordered_sum.h"

#include <algorithm>

#include "core/error.h"
#include "core/kernels/kernels.h"

namespace stagecoach {
namespace {

/// A copy in the other of the types float16 and float32.
Tensor converted(const Tensor& tensor, DType dtype) {
  Tensor copy = Tensor::empty(tensor.shape(), dtype, tensor.device());
  kernels(tensor.device()).convert(tensor, copy);
  return copy;
}

Tensor sum_of_halves(const std::vector<Tensor>& parts) {
  std::vector<Tensor> floats(parts.size());
  std::transform(parts.begin(), parts.end(), floats.begin(),
                 [](const Tensor& part) { return converted(part, DType::float32); });
  return converted(ordered_sum(floats, 0), DType::float16);
}

}  // namespace

Tensor ordered_sum(const std::vector<Tensor>& parts, std::optional<std::size_t> scratch) {
  STAGECOACH_CHECK(!parts.empty() && scratch.value_or(0) < std::min<std::size_t>(parts.size(), 2),
                   "ordered_sum: {} parts, the sum in the memory of part {}", parts.size(), scratch.value_or(0));
  if (parts[0].dtype() == DType::float16) {
    return sum_of_halves(parts);
  }
  const std::size_t first = scratch.value_or(0);
  Tensor sum = scratch ? parts[first] : parts[0].clone();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i != first) {
      kernels(sum.device()).add_scaled(parts[i], 1, sum);
    }
  }
  return sum;
}

std::int64_t part_start(std::int64_t count, int part, int parts) { return count * part / parts; }

}  // namespace stagecoach
