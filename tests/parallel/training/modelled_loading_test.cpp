// What data take on the modelled clock, to the picosecond.

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/kernels/costs.h"
#include "core/ops.h"
#include "datasets/device_loader.h"
#include "datasets/generated.h"
#include "parallel/comm/clock.h"

namespace stagecoach {
namespace {

/// Three batches, of 5, 5 and 2 images, and a step with each that takes what adding two tensors does.
class ModelledLoading : public ::testing::Test {
 protected:
  explicit ModelledLoading(double bytes_per_second) {
    model_.load_bytes_per_second = bytes_per_second;
    model_.host_bytes_per_second = 2 * bytes_per_second;
  }
  /// Expects the times at which the batches are taken, in an epoch after other work.
  void expect_taken(const std::vector<std::int64_t>& expected) {
    const auto clock = make_clock(ClockKind::modelled, Device{}, {}, model_);
    const auto now = [&] { return std::llround(1e12 * clock->now()); };
    DeviceLoader loader(Loader(generate({.train = 12, .test = 1}).train, {.batch_size = 5, .prefetch = false}), {});
    add(a_, a_);
    const std::int64_t start = now();
    loader.start_epoch(1);
    std::vector<std::int64_t> taken;
    while (const auto batch = loader.next()) {
      taken.push_back(now() - start);
      add(a_, a_);
    }
    EXPECT_EQ(taken, expected);
    EXPECT_NEAR(clock->waited(), 1e-12 * static_cast<double>(taken.back() - 2 * cost()), 1e-15);
  }
  /// Returns what the loader takes from images to a batch on the device.
  std::int64_t load(std::int64_t images) const {
    const auto bytes = static_cast<double>(images * (3 * 32 * 32 + 4));
    return std::llround(1e12 * (bytes * (1 / model_.load_bytes_per_second + 1 / model_.host_bytes_per_second)));
  }
  std::int64_t cost() const {
    Tensor sum = Tensor::empty({1000});
    return model_.picoseconds(kernel_costs().add(a_, a_, sum));
  }
  DeviceModel model_ = device_model("laptop");
  const Tensor a_ = Tensor::zeros({1000});
};

class ModelledFastLoading : public ModelledLoading {
 protected:
  ModelledFastLoading() : ModelledLoading(1e12) {}
};

class ModelledSlowLoading : public ModelledLoading {
 protected:
  ModelledSlowLoading() : ModelledLoading(1e7) {}
};

TEST_F(ModelledFastLoading, IsBesideTheStepBefore) {
  ASSERT_LT(load(5), cost());
  expect_taken({load(5), load(5) + cost(), load(5) + 2 * cost()});
}

// The first epoch begins when all samples have been copied; then only crops are loaded, 32 bytes per sample.
TEST_F(ModelledSlowLoading, OfDataOnTheDeviceIsOnce) {
  const auto clock = make_clock(ClockKind::modelled, Device{}, {}, model_);
  const Dataset data = generate({.train = 12, .test = 1}).train;
  DeviceLoader loader(Loader(data, {.batch_size = 12, .on_device = true, .prefetch = false}), {});
  loader.start_epoch(1);
  EXPECT_EQ(std::llround(1e12 * clock->now()), load(12));
  loader.next();
  EXPECT_LT(std::llround(1e12 * clock->now()), load(12) + load(1));
  const double before = clock->now();
  loader.start_epoch(2);
  EXPECT_EQ(clock->now(), before);
}

TEST_F(ModelledSlowLoading, IsWhatStepsWaitFor) {
  ASSERT_GT(load(2), cost());
  expect_taken({load(5), 2 * load(5), 2 * load(5) + load(2)});
}

}  // namespace
}  // namespace stagecoach
