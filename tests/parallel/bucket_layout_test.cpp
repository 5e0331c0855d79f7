// Which gradients share a bucket.

#include "parallel/data_parallel/bucket_layout.h"

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

}  // namespace
}  // namespace stagecoach
