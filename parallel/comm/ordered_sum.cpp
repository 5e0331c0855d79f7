#include "parallel/comm/ordered_sum.h"

#include <utility>

#include "core/base/error.h"
#include "core/kernels/kernels.h"

namespace stagecoach {
namespace {

void require_parts(const std::vector<Tensor>& parts, std::size_t mine) {
  STAGECOACH_CHECK(mine < parts.size(), "ordered_sum: expected the index of one of the {} parts, got {}", parts.size(),
                   mine);
}

/// Returns float32 copies of float16 tensors.
std::vector<Tensor> as_floats(const std::vector<Tensor>& parts) {
  std::vector<Tensor> floats;
  for (const Tensor& part : parts) {
    floats.push_back(Tensor::empty(part.shape(), DType::float32, part.device()));
    kernels(part.device()).convert(part, floats.back());
  }
  return floats;
}

}  // namespace

Tensor ordered_sum(const std::vector<Tensor>& parts) {
  require_parts(parts, 0);
  std::vector<Tensor> terms = parts;  // the same memory, except for the first, which becomes the sum
  terms[0] = parts[0].clone();
  sum_in_order(terms, 0);
  return terms[0];
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
