// Which gradients share a bucket.

#include "parallel/data_parallel/buckets.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>

namespace stagecoach {
namespace {

TEST(BucketLayout, ClosesABucketWithTheTensorThatReachesTheCap) {
  NamedTensors parameters;
  for (const std::int64_t count : {10, 20, 30, 40}) {
    parameters.emplace_back(fmt::format("p{}", count), Tensor::zeros({count}));
  }
  const auto order = reverse_order(4);
  EXPECT_EQ(bucket_layout(parameters, order, {1, 1}), (BucketLayout{{3}, {2}, {1}, {0}}));
  EXPECT_EQ(bucket_layout(parameters, order, {160, 161}), (BucketLayout{{3}, {2, 1}, {0}}));
  EXPECT_EQ(bucket_layout(parameters, order, {161, 1}), (BucketLayout{{3, 2}, {1}, {0}}));
  EXPECT_EQ(bucket_layout(parameters, order, {std::numeric_limits<std::size_t>::max(), 1}),
            (BucketLayout{{3, 2, 1, 0}}));
  parameters[2].second = Tensor::zeros({30}, DType::float64);
  EXPECT_EQ(bucket_layout(parameters, order,
                          {std::numeric_limits<std::size_t>::max(), std::numeric_limits<std::size_t>::max()}),
            (BucketLayout{{3, 1, 0}, {2}}));
}

// Those of one part may be ready long before the others.
TEST(BucketLayout, EndsABucketWithItsPart) {
  NamedTensors parameters;
  for (int i = 0; i < 4; ++i) {
    parameters.emplace_back(fmt::format("p{}", i), Tensor::zeros({10}));
  }
  constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
  EXPECT_EQ(bucket_layout(parameters, reverse_order(4), {kAll, kAll}, {1, 1, 2, 2}), (BucketLayout{{3, 2}, {1, 0}}));
  EXPECT_EQ(bucket_layout(parameters, reverse_order(4), {40, kAll}, {1, 1, 2, 2}), (BucketLayout{{3}, {2}, {1, 0}}));
}

/// Tensors of 4 MiB, by the caps that chapter 6 has without flags.
TEST(BucketLayout, TheUsualCapsCutALargeModel) {
  constexpr std::size_t kMiB = 1 << 20;
  NamedTensors parameters;
  for (int i = 0; i < 16; ++i) {
    parameters.emplace_back(fmt::format("p{}", i), Tensor::empty({1 << 20}));
  }
  EXPECT_EQ(bucket_layout(parameters, reverse_order(16), {kMiB, 25 * kMiB}),
            (BucketLayout{{15}, {14, 13, 12, 11, 10, 9, 8}, {7, 6, 5, 4, 3, 2, 1}, {0}}));
}

}  // namespace
}  // namespace stagecoach
