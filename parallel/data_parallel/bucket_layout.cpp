#include "parallel/data_parallel/bucket_layout.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace stagecoach {

BucketLayout bucket_layout(const NamedTensors& parameters, const std::vector<std::size_t>& order,
                           const BucketCaps& caps) {
  struct Open {
    std::size_t bucket;
    std::size_t bytes;
  };
  BucketLayout layout;
  std::map<DType, Open> open;
  for (const std::size_t place : order) {
    const Tensor& parameter = parameters[place].second;
    const auto [found, is_new] = open.try_emplace(parameter.dtype(), Open{layout.size(), 0});
    if (is_new) {
      layout.emplace_back();
    }
    Open& mine = found->second;
    layout[mine.bucket].push_back(place);
    mine.bytes += parameter.bytes();
    if (mine.bytes >= (mine.bucket == 0 ? caps.first : caps.rest)) {
      open.erase(found);
    }
  }
  return layout;
}

std::vector<std::size_t> reverse_order(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return order;
}

}  // namespace stagecoach
