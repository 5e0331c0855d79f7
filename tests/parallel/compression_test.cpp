// What happens to a bucket of gradients on its way: to the sum, to the errors, and to the number of bytes.

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

/// Some that are sent as they are, and others that power_sgd compresses.
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

double norm(const Tensor& x) {
  double sum = 0;
  for (const double value : test::values_of(x)) {
    sum += value * value;
  }
  return std::sqrt(sum);
}

/// |a - b| / |b|
double distance(const Tensor& a, const Tensor& b) {
  Tensor difference = a.clone();
  kernels({}).add_scaled(b, -1, difference);
  return norm(difference) / norm(b);
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

  /// The sum of one gradient's results over all steps.
  static Tensor total(const std::vector<NamedTensors>& steps, std::size_t i) {
    Tensor sum = steps[0][i].second.clone();
    for (std::size_t step = 1; step < steps.size(); ++step) {
      kernels({}).add_scaled(steps[step][i].second, 1, sum);
    }
    return sum;
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

/// [n, m], the product of random [n, 1] and [1, m].
Tensor outer_product(std::int64_t n, std::int64_t m, const std::string& name, DType dtype) {
  Tensor product = Tensor::empty({n, m}, dtype);
  kernels({}).linear_grad_input(random_tensor({n, 1}, name + ", left", dtype),
                                random_tensor({1, m}, name + ", right", dtype), product);
  return product;
}

// The sum over three ranks is a product of three columns; the fourth has nothing to do.
TEST_P(Compression, PowerSgdSendsProductsOfFewColumnsWhole) {
  for (const DType dtype : {DType::float32, DType::float64}) {
    const GradientsOf gradients = [&](int rank, int step) -> NamedTensors {
      const std::string name = fmt::format("rank {}, step {}", rank, step);
      return {{"fc", outer_product(40, 50, name, dtype)},
              {"conv", outer_product(24, 27, name, dtype).alias({24, 3, 3, 3}, 0)}};
    };
    const auto results = run(3, 2, gradients, [] { return power_sgd(4); });
    for (int step = 0; step < 2; ++step) {
      const NamedTensors wanted = sum_of(gradients, 3, step);
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        const Tensor& result = results[static_cast<std::size_t>(step)][i].second;
        EXPECT_LT(distance(result, wanted[i].second), dtype == DType::float32 ? 1e-5 : 1e-12) << wanted[i].first;
      }
    }
  }
}

TEST_P(Compression, PowerSgdSendsVectorsAndSmallMatricesAsTheyAre) {
  const auto results = run(3, 2, random_gradients, [] { return power_sgd(2); });
  for (int step = 0; step < 2; ++step) {
    const NamedTensors wanted = sum_of(random_gradients, 3, step);
    for (const std::size_t i : {1U, 2U}) {
      EXPECT_TRUE(same_bytes(results[static_cast<std::size_t>(step)][i].second, wanted[i].second)) << wanted[i].first;
    }
    for (const std::size_t i : {0U, 3U}) {
      EXPECT_GT(distance(results[static_cast<std::size_t>(step)][i].second, wanted[i].second), 0.1) << "compressed";
    }
  }
}

// Two columns of gradients that need many: what is lost in a step comes in a later one. With a new hook in each step,
// which remembers nothing, the same part is lost every time.
TEST_P(Compression, PowerSgdTendsToAConstantGradient) {
  const GradientsOf constant = [](int rank, int) { return random_gradients(rank, 0); };
  const NamedTensors wanted = sum_of(constant, 2, 0);
  const auto remembering = run(2, 100, constant, [] { return power_sgd(2); });
  const auto forgetting =
      run(2, 10, constant, [] { return [](Bucket& bucket, Communicator& comm) { power_sgd(2)(bucket, comm); }; });
  // Of the mean of the first `steps` results.
  const auto error = [&](const std::vector<NamedTensors>& results, int steps, std::size_t i) {
    Tensor mean = total({results.begin(), results.begin() + steps}, i);
    kernels({}).scale(mean, 1.0 / steps, mean);
    return distance(mean, wanted[i].second);
  };
  for (const std::size_t i : {0U, 3U}) {
    SCOPED_TRACE(wanted[i].first);
    EXPECT_GT(error(remembering, 1, i), 0.5);
    EXPECT_LT(error(remembering, 100, i), 0.3 * error(remembering, 25, i))
        << "what is kept has a bound: 1 / steps of it";
    EXPECT_LT(error(remembering, 100, i), 0.1);
    EXPECT_GT(error(forgetting, 10, i), 0.5);
  }
}

// When no more gradients come, the errors do: each step takes r columns off them.
TEST_P(Compression, PowerSgdLosesNothing) {
  constexpr int kSteps = 3;
  const GradientsOf ending = [](int rank, int step) {
    NamedTensors gradients = random_gradients(rank, step);
    for (auto& [name, gradient] : gradients) {
      if (step >= kSteps) {
        gradient.fill(0);
      }
    }
    return gradients;
  };
  std::vector<NamedTensors> wanted;
  for (int step = 0; step < kSteps; ++step) {
    wanted.push_back(sum_of(ending, 4, step));
  }
  const auto results = run(4, kSteps + 6, ending, [] { return power_sgd(4); });
  const std::vector<NamedTensors> early(results.begin(), results.begin() + kSteps);
  for (std::size_t i = 0; i < wanted[0].size(); ++i) {
    EXPECT_LT(distance(total(results, i), total(wanted, i)), 1e-5) << wanted[0][i].first;
  }
  EXPECT_GT(distance(total(early, 3), total(wanted, 3)), 0.1) << "the errors were not 0";
}

// The buckets of the first step are not those of the later ones; an error belongs to a parameter.
TEST_P(Compression, PowerSgdKeepsErrorsWhenBucketsChange) {
  constexpr int kSteps = 4;
  const auto wanted = run(2, kSteps, random_gradients, [] { return power_sgd(2); });
  launch({.ranks = 2, .device = GetParam().type}, [&](Rank& rank) {
    const ReduceBucket hook = power_sgd(2);
    for (int step = 0; step < kSteps; ++step) {
      const NamedTensors gradients = random_gradients(rank.index, step);
      std::vector<NamedTensors> layout{gradients};
      if (step > 0) {
        layout = {{gradients[3], gradients[1]}, {gradients[2], gradients[0]}};
      }
      for (const NamedTensors& part : layout) {
        Bucket bucket = bucket_of(part, rank.device);
        hook(bucket, rank.comm);
        for (const auto& [name, result] : results_of(bucket)) {
          for (const auto& [other, same] : wanted[static_cast<std::size_t>(step)]) {
            EXPECT_TRUE(name != other || same_bytes(result, same)) << name << ", step " << step;
          }
        }
      }
    }
  });
}

// What is copied out of the memory after a step and put into another hook's goes on as if nothing had happened.
TEST_P(Compression, PowerSgdGoesOnFromItsMemory) {
  constexpr int kSteps = 4;
  const auto wanted = run(2, kSteps, random_gradients, [] { return power_sgd(2, 7); });
  launch({.ranks = 2, .device = GetParam().type}, [&](Rank& rank) {
    CompressionMemory saved;
    for (int step = 0; step < kSteps; ++step) {
      const auto memory = std::make_shared<CompressionMemory>(saved);
      Bucket bucket = bucket_of(random_gradients(rank.index, step), rank.device);
      power_sgd(2, 7, memory)(bucket, rank.comm);
      for (const auto& [name, tensor] : *memory) {
        saved[name] = tensor.clone();
      }
      const NamedTensors results = results_of(bucket);
      for (std::size_t i = 0; i < results.size(); ++i) {
        EXPECT_TRUE(same_bytes(results[i].second, wanted[static_cast<std::size_t>(step)][i].second))
            << results[i].first << ", step " << step;
      }
    }
    EXPECT_EQ(saved.size(), 4U) << "of each of two matrices, its error and its Q";
  });
}

// A layer that begins with zeros must not be left out forever: its Q would be 0.
TEST_P(Compression, PowerSgdSurvivesAGradientOfZeros) {
  const GradientsOf late = [](int rank, int step) -> NamedTensors {
    const Tensor gradient = outer_product(20, 30, fmt::format("rank {}", rank), DType::float32);
    return {{"w", step == 0 ? Tensor::zeros({20, 30}) : gradient}};
  };
  const auto results = run(2, 4, late, [] { return power_sgd(3); });
  EXPECT_TRUE(same_bytes(results[0][0].second, Tensor::zeros({20, 30})));
  const std::vector<NamedTensors> wanted(3, sum_of(late, 2, 1));
  EXPECT_LT(distance(total(results, 0), total(wanted, 0)), 1e-5);
}

TEST_P(Compression, PowerSgdShowsWhatIsNoNumber) {
  const GradientsOf diverged = [](int rank, int) -> NamedTensors {
    Tensor gradient = random_tensor({20, 30}, "w", DType::float32);
    gradient.narrow(7, 1).fill(rank == 0 ? std::nan("") : 0);
    return {{"w", gradient}};
  };
  const auto results = run(2, 1, diverged, [] { return power_sgd(3); });
  EXPECT_TRUE(std::isnan(norm(results[0][0].second)));
}

// By a clock that knows of nothing but messages; 2 (p - 1) latencies each say how many there were.
TEST(CompressionVolume, IsAsDocumented) {
  const Link link{.latency = 1000, .bytes_per_second = 1};
  const auto gradients = [] {
    return NamedTensors{{"w", Tensor::full({40, 5, 10}, 1)}, {"bias", Tensor::full({40}, 1)}};  // [40, 50]: 2000
  };
  const auto expect_seconds = [&](CompressionKind kind, std::initializer_list<double> messages) {
    double wanted = 0;
    for (const double bytes : messages) {
      wanted += ring_all_reduce_seconds(link, 3, bytes);
    }
    launch({.ranks = 3, .clock = ClockKind::virtual_time, .network = link}, [&](Rank& rank) {
      const ReduceBucket hook = make_compression(kind).reduce;
      Bucket bucket = bucket_of(gradients(), rank.device);
      const double before = rank.comm.clock().now();
      hook(bucket, rank.comm);
      EXPECT_NEAR(rank.comm.clock().now() - before, wanted, 5) << compression_names()[static_cast<std::size_t>(kind)];
    });
  };
  expect_seconds(CompressionKind::none, {2040 * 4});
  expect_seconds(CompressionKind::half, {2040 * 2});
  expect_seconds(CompressionKind::powersgd, {(4 * 40 + 40) * 4, 4 * 50 * 4});
}

TEST(CompressionNames, AreKnown) {
  EXPECT_EQ(compression_names(), (std::vector<std::string>{"none", "half", "powersgd"}));
  for (const CompressionKind kind : {CompressionKind::none, CompressionKind::half, CompressionKind::powersgd}) {
    EXPECT_TRUE(make_compression(kind).reduce);
    EXPECT_EQ(make_compression(kind).memory != nullptr, kind == CompressionKind::powersgd);
  }
  EXPECT_TRUE(fails_with<UsageError>({"at least 1 column, got 0", "at least 1"}, [] { power_sgd(0); }));
}

TEST(PowerSgd, AParameterKeepsItsShape) {
  const auto here = self_communicator({});
  const ReduceBucket hook = power_sgd(1);
  Bucket bucket = bucket_of({{"w", Tensor::full({4, 5}, 1)}}, {});
  hook(bucket, *here);
  bucket = bucket_of({{"w", Tensor::full({5, 4}, 1)}}, {});
  EXPECT_TRUE(fails_with({"'w'", "[5, 4]", "[4, 5]"}, [&] { hook(bucket, *here); }));
}

}  // namespace
}  // namespace stagecoach
