// Devices that work beside their controller on the modelled clock, to the picosecond.

#include "parallel/comm/modelled_streams.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "core/asynchronous.h"
#include "core/kernels/costs.h"
#include "core/ops.h"
#include "parallel/comm/clock.h"

namespace stagecoach {
namespace {

constexpr Device kFirst{DeviceType::cpu, 1};
constexpr Device kSecond{DeviceType::cpu, 2};
constexpr std::int64_t kCount = 1000;            // numbers in a tensor
constexpr std::int64_t kLaunch = 1000;           // picoseconds, for which the host is busy
constexpr std::int64_t kLatency = 700'000;       // of the link
constexpr std::int64_t kTransfer = 4'000'000;    // of a tensor over the link
constexpr std::int64_t kFromHost = 400'000'000;  // of a tensor from the host

class ModelledStreamsTest : public ::testing::Test {
 protected:
  static DeviceModel model() {
    DeviceModel model = device_model("laptop");
    model.host_launch_seconds = 1e-9;
    model.host_bytes_per_second = 1e7;
    return model;
  }
  static constexpr Link kLink{.latency = 7e-7, .bytes_per_second = 1e9};

  /// Returns the picoseconds since start().
  std::int64_t now() { return std::llround(1e12 * clock_->now()) - start_; }
  std::int64_t finished() {
    finish_queued_calls();
    return now();
  }
  void start() { start_ = std::llround(1e12 * clock_->now()); }
  /// Returns a tensor that the device has filled.
  Tensor filled(Device device) {
    const Tensor tensor = Tensor::full({kCount}, 1, DType::float32, device);
    finish_queued_calls();
    start();
    return tensor;
  }
  static std::int64_t cost() {
    const Tensor a = Tensor::empty({kCount});
    Tensor sum = Tensor::empty({kCount});
    return model().picoseconds(kernel_costs().add(a, a, sum));
  }

  std::unique_ptr<Clock> clock_ = make_clock(ClockKind::modelled, Device{}, {}, model());
  std::int64_t start_ = 0;
};

TEST_F(ModelledStreamsTest, DevicesWorkBesideEachOtherAndTheHost) {
  ModelledStreams streams({kFirst, kSecond}, kLink, Stream::kCopies);
  const Tensor a = filled(kFirst);
  const Tensor b = filled(kSecond);
  const double busy = streams.busy_seconds(kFirst);
  add(a, a);
  add(a, a);
  add(b, b);
  EXPECT_EQ(now(), 3 * kLaunch);
  EXPECT_EQ(finished(), kLaunch + 2 * cost());
  EXPECT_NEAR(streams.busy_seconds(kFirst) - busy, 2e-12 * static_cast<double>(cost()), 1e-15);
}

TEST_F(ModelledStreamsTest, AMessageTakesItsLinkBesideTheSendersWork) {
  ModelledStreams streams({kFirst, kSecond}, kLink, Stream::kCopies);
  const Tensor a = filled(kFirst);
  const Tensor there = a.to(kSecond);
  add(a, a);  // beside the copy
  add(there, there);
  EXPECT_EQ(now(), 3 * kLaunch);
  synchronize({kFirst});
  EXPECT_EQ(now(), 2 * kLaunch + cost());
  EXPECT_EQ(finished(), kLaunch + kTransfer + kLatency + cost());
}

TEST_F(ModelledStreamsTest, AMessageWaitsForWhatItsSenderWasGivenBefore) {
  ModelledStreams streams({kFirst, kSecond}, kLink, Stream::kCopies);
  const Tensor a = filled(kFirst);
  const Tensor sum = add(a, a);
  const Tensor there = sum.to(kSecond);
  EXPECT_EQ(finished(), kLaunch + cost() + kTransfer + kLatency);
  add(there, there);
  EXPECT_EQ(finished(), 2 * kLaunch + 2 * cost() + kTransfer + kLatency);
}

TEST_F(ModelledStreamsTest, ACopyOnTheComputeStreamHoldsItUp) {
  ModelledStreams streams({kFirst, kSecond}, kLink, Stream::kCompute);
  const Tensor a = filled(kFirst);
  a.to(kSecond);
  add(a, a);
  EXPECT_EQ(finished(), kLaunch + kTransfer + std::max(cost(), kLatency));  // whichever device ends last
}

TEST_F(ModelledStreamsTest, ReadingAValueWaitsForItsDevice) {
  ModelledStreams streams({kFirst, kSecond}, kLink, Stream::kCopies);
  const Tensor a = filled(kFirst);
  const Tensor b = filled(kSecond);
  add(a, a);
  const Tensor sum = add(b, b);
  add(a, a);
  EXPECT_EQ(sum.to_vector<float>()[0], 2);
  EXPECT_EQ(now(), 2 * kLaunch + cost());
}

TEST_F(ModelledStreamsTest, TheHostsMemoryHasItsOwnRate) {
  ModelledStreams streams({kFirst, kSecond}, kLink, Stream::kCopies);
  filled(kFirst);
  const Tensor there = Tensor::empty({kCount}).to(kFirst);
  EXPECT_EQ(now(), kLaunch);
  EXPECT_EQ(finished(), kLaunch + kFromHost);
  there.to(Device{});  // the host waits for it
  EXPECT_EQ(now(), 2 * kLaunch + 2 * kFromHost);
}

TEST_F(ModelledStreamsTest, ASynchronousControllerWaitsForEachCall) {
  ModelledStreams streams({kFirst, kSecond}, kLink, Stream::kCopies, true);
  const Tensor a = filled(kFirst);
  add(a, a);
  EXPECT_EQ(now(), kLaunch + cost());
  a.to(kSecond);
  EXPECT_EQ(now(), 2 * kLaunch + cost() + kTransfer + kLatency);
}

TEST_F(ModelledStreamsTest, WithoutThemTheThreadIsTheDevice) {
  const Tensor a = filled(kFirst);
  const Tensor b = filled(kSecond);
  add(a, a);
  add(b, b);
  EXPECT_EQ(now(), 2 * cost());
}

}  // namespace
}  // namespace stagecoach
