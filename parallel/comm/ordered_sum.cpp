#include "parallel/comm/ordered_sum.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/kernels/kernels.h"

namespace stagecoach {
namespace {

/// Returns a copy converted between float16 and float32.
Tensor converted(const Tensor& tensor, DType dtype) {
  Tensor copy = Tensor::empty(tensor.shape(), dtype, tensor.device());
  kernels(tensor.device()).convert(tensor, copy);
  return copy;
}

void require_parts(const std::vector<Tensor>& parts, std::size_t mine) {
  STAGECOACH_CHECK(mine < parts.size(), "ordered_sum: expected the index of one of the {} parts, got {}", parts.size(),
                   mine);
}

std::vector<Tensor> as_floats(const std::vector<Tensor>& parts) {
  std::vector<Tensor> floats(parts.size());
  std::transform(parts.begin(), parts.end(), floats.begin(),
                 [](const Tensor& part) { return converted(part, DType::float32); });
  return floats;
}

}  // namespace

Tensor ordered_sum(const std::vector<Tensor>& parts) {
  require_parts(parts, 0);
  if (parts[0].dtype() == DType::float16) {
    std::vector<Tensor> floats = as_floats(parts);
    sum_in_order(floats, 0);
    return converted(floats[0], DType::float16);
  }
  Tensor sum = parts[0].clone();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    kernels(sum.device()).add_scaled(parts[i], 1, sum);
  }
  return sum;
}

void sum_in_order(std::vector<Tensor>& parts, std::size_t mine) {
  require_parts(parts, mine);
  if (parts[0].dtype() == DType::float16) {
    std::vector<Tensor> floats = as_floats(parts);
    sum_in_order(floats, mine);
    kernels(parts[mine].device()).convert(floats[mine], parts[mine]);
    return;
  }
  // Addition of two numbers is commutative, so when part `mine` is reached, the sum so far is added to it.
  Tensor* sum = parts.data();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    Tensor* next = &parts[i];
    if (i == mine) {
      std::swap(sum, next);
    }
    kernels(sum->device()).add_scaled(*next, 1, *sum);
  }
}

std::int64_t part_start(std::int64_t count, int part, int parts) { return count * part / parts; }

}  // namespace stagecoach
