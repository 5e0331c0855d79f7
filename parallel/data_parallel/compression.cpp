#include "parallel/data_parallel/compression.h"

#include "core/kernels/kernels.h"

namespace stagecoach {

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
  static const std::vector<std::string> names{"none", "half", "powersgd"};
  return names;
}

Compression make_compression(CompressionKind kind) {
  if (kind == CompressionKind::none) {
    return {plain_sum(), nullptr};
  }
  if (kind == CompressionKind::half) {
    return {half_precision(), nullptr};
  }
  const auto memory = std::make_shared<CompressionMemory>();
  return {power_sgd(4, 0, memory), memory};
}

}  // namespace stagecoach
