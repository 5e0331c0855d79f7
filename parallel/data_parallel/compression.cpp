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

ReduceBucket make_compression(CompressionKind kind) {
  return kind == CompressionKind::half ? half_precision() : plain_sum();
}

}  // namespace stagecoach
