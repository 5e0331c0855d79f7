#include "parallel/data_parallel/compression.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "core/error.h"
#include "core/kernels/kernels.h"

namespace stagecoach {
namespace {

Compression none() { return {plain_sum(), nullptr}; }
Compression half() { return {half_precision(), nullptr}; }

Compression powersgd() {
  const auto memory = std::make_shared<CompressionMemory>();
  return {power_sgd(4, 0, memory), memory};
}

using Maker = Compression (*)();
constexpr std::array<std::pair<const char*, Maker>, 3> kCompressions{
    {{"none", none}, {"half", half}, {"powersgd", powersgd}}};

}  // namespace

ReduceBucket plain_sum() {
  return [](Bucket& bucket, Communicator& comm) { comm.all_reduce(bucket.flat); };
}

ReduceBucket half_precision() {
  return [](Bucket& bucket, Communicator& comm) {
    const Kernels& device = kernels(bucket.flat.device());
    Tensor halves = Tensor::empty(bucket.flat.shape(), DType::float16, bucket.flat.device());
    device.convert(bucket.flat, halves);
    comm.all_reduce(halves);
    device.convert(halves, bucket.flat);
  };
}

const std::vector<std::string>& compression_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& [name, maker] : kCompressions) {
      all.emplace_back(name);
    }
    return all;
  }();
  return names;
}

Compression make_compression(const std::string& name) {
  for (const auto& [known, maker] : kCompressions) {
    if (name == known) {
      return maker();
    }
  }
  throw UsageError(fmt::format("'{}' is no compression: give {}", name, fmt::join(compression_names(), ", ")));
}

}  // namespace stagecoach
