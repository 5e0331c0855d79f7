// What happens to a bucket of gradients on its way: to the sum, and to the number of bytes.

#include "parallel/data_parallel/compression.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "core/kernels/kernels.h"
#include "nn/named_tensors.h"
#include "parallel/launch/launch.h"
#include "tests/support/devices.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::close;
using test::fails_with;
using test::random_tensor;
using test::same_bytes;

/// A bucket of these gradients, which lie on the CPU.
Bucket bucket_of(const NamedTensors& gradients, Device device) {
  std::int64_t count = 0;
  for (const auto& [name, gradient] : gradients) {
    count += gradient.numel();
  }
  Bucket bucket{.flat = Tensor::empty({count}, gradients[0].second.dtype(), device)};
  std::int64_t offset = 0;
  for (const auto& [name, gradient] : gradients) {
    bucket.names.push_back(name);
    bucket.gradients.push_back(bucket.flat.alias(gradient.shape(), offset));
    bucket.gradients.back().copy_from(gradient);
    offset += gradient.numel();
  }
  return bucket;
}

/// What a step made of the gradients.
NamedTensors results_of(const Bucket& bucket) {
  NamedTensors results;
  for (std::size_t i = 0; i < bucket.names.size(); ++i) {
    results.emplace_back(bucket.names[i], bucket.gradients[i].to(Device{}).clone());
  }
  return results;
}

/// The gradients of a rank in a step.
using GradientsOf = std::function<NamedTensors(int rank, int step)>;

NamedTensors random_gradients(int rank, int step) {
  NamedTensors all;
  for (const auto& [name, shape] : std::vector<std::pair<std::string, Shape>>{
           {"conv.weight", {12, 3, 3, 3}}, {"conv.bias", {12}}, {"small", {3, 5}}, {"fc.weight", {20, 30}}}) {
    all.emplace_back(name, random_tensor(shape, fmt::format("{}, rank {}, step {}", name, rank, step), DType::float32));
  }
  return all;
}

/// The sum over `world` ranks, in their order.
NamedTensors sum_of(const GradientsOf& gradients, int world, int step) {
  NamedTensors sum = gradients(0, step);
  for (int r = 1; r < world; ++r) {
    const NamedTensors more = gradients(r, step);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      kernels({}).add_scaled(more[i].second, 1, sum[i].second);
    }
  }
  return sum;
}

class Compression : public ::testing::TestWithParam<Device> {
 protected:
  /// The results of each of `steps` steps, which all ranks are seen to share. Each rank makes its own hook.
  static std::vector<NamedTensors> run(int world, int steps, const GradientsOf& gradients,
                                       const std::function<ReduceBucket()>& make) {
    std::vector<std::vector<NamedTensors>> all(static_cast<std::size_t>(world));
    launch({.ranks = world, .device = GetParam().type}, [&](Rank& rank) {
      const ReduceBucket hook = make();
      for (int step = 0; step < steps; ++step) {
        Bucket bucket = bucket_of(gradients(rank.index, step), rank.device);
        hook(bucket, rank.comm);
        all[static_cast<std::size_t>(rank.index)].push_back(results_of(bucket));
      }
    });
    for (const auto& results : all) {
      for (std::size_t step = 0; step < results.size(); ++step) {
        for (std::size_t i = 0; i < results[step].size(); ++i) {
          EXPECT_TRUE(same_bytes(results[step][i].second, all[0][step][i].second)) << results[step][i].first;
        }
      }
    }
    return all[0];
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, Compression, ::testing::ValuesIn(test::devices()), test::device_name);

TEST_P(Compression, NoneIsTheSum) {
  for (const int world : {1, 3}) {
    const auto results = run(world, 1, random_gradients, plain_sum);
    const NamedTensors wanted = sum_of(random_gradients, world, 0);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_TRUE(same_bytes(results[0][i].second, wanted[i].second)) << wanted[i].first;
    }
  }
}

/// As float16 and back.
Tensor rounded(const Tensor& x) {
  std::vector<float> values = x.to_vector<float>();
  for (float& value : values) {
    value = to_float(to_half(value));
  }
  return Tensor::from(values, x.shape());
}

TEST_P(Compression, HalfRoundsWhatIsSentAndTheSum) {
  const GradientsOf halves = [](int rank, int step) {
    NamedTensors gradients = random_gradients(rank, step);
    for (auto& [name, gradient] : gradients) {
      gradient = rounded(gradient);
    }
    return gradients;
  };
  for (const int world : {1, 2, 3, 4}) {
    const auto results = run(world, 1, random_gradients, half_precision);
    const NamedTensors wanted = sum_of(halves, world, 0);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_TRUE(same_bytes(results[0][i].second, rounded(wanted[i].second))) << wanted[i].first;
    }
  }
}

TEST_P(Compression, HalfHasLimits) {
  const GradientsOf gradients = [](int rank, int) -> NamedTensors {
    const float large = rank == 0 ? -7e4F : 1;
    return {{"w", Tensor::from(std::vector<float>{large, 4e4F, 1e-8F, 6e4F}, {4})}};
  };
  const auto results = run(2, 1, gradients, half_precision);
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(results[0][0].second.to_vector<float>(), (std::vector<float>{-infinity, infinity, 0, infinity}));
}

// By a clock that knows of nothing but messages; 2 (p - 1) latencies each say how many there were.
TEST(CompressionVolume, IsAsDocumented) {
  const Link link{.latency = 1000, .bytes_per_second = 1};
  const auto gradients = [] {
    return NamedTensors{{"w", Tensor::full({40, 5, 10}, 1)}, {"bias", Tensor::full({40}, 1)}};  // [40, 50]: 2000
  };
  const auto expect_seconds = [&](CompressionKind kind, double bytes) {
    const double wanted = ring_all_reduce_seconds(link, 3, bytes);
    launch({.ranks = 3, .clock = ClockKind::virtual_time, .network = link}, [&](Rank& rank) {
      const ReduceBucket hook = make_compression(kind);
      Bucket bucket = bucket_of(gradients(), rank.device);
      const double before = rank.comm.clock().now();
      hook(bucket, rank.comm);
      EXPECT_NEAR(rank.comm.clock().now() - before, wanted, 5) << static_cast<int>(kind);
    });
  };
  expect_seconds(CompressionKind::none, 2040 * 4);
  expect_seconds(CompressionKind::half, 2040 * 2);
}

}  // namespace
}  // namespace stagecoach
