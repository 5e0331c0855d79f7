// Streams and events. On a CPU all work is done when the call returns; the same rules hold on a GPU.

#include "core/stream.h"

#include <gtest/gtest.h>

#include "core/ops.h"
#include "tests/support/devices.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::fails_with;

TEST(Stream, EqualsByDeviceAndNumber) {
  EXPECT_EQ((Stream{{DeviceType::cpu, 1}, 2}), (Stream{{DeviceType::cpu, 1}, 2}));
  EXPECT_NE((Stream{{DeviceType::cpu, 1}, 2}), (Stream{{DeviceType::cpu, 1}, 3}));
  EXPECT_NE((Stream{{DeviceType::cpu, 1}, 2}), (Stream{{DeviceType::cpu, 0}, 2}));
  EXPECT_NE((Stream{{DeviceType::cuda, 0, 1}, 0}), (Stream{{DeviceType::cuda, 0, 0}, 0}));
}

TEST(Stream, OfACpuIsAlwaysDrained) {
  synchronize({});
  synchronize({{DeviceType::cpu, 5}, 3});
  EXPECT_TRUE(fails_with<UsageError>({"cpu:128"}, [] { synchronize({{DeviceType::cpu, 128}, 0}); }));
  EXPECT_TRUE(fails_with<UsageError>({"cuda:127"}, [] { synchronize({{DeviceType::cuda, 127}, 0}); }));
}

/// The two streams of a device.
class Streams : public ::testing::TestWithParam<Device> {
 protected:
  const Stream compute_{GetParam(), Stream::kCompute};
  const Stream copies_{GetParam(), Stream::kCopies};
};
INSTANTIATE_TEST_SUITE_P(Devices, Streams, ::testing::ValuesIn(test::devices()), test::device_name);

TEST_P(Streams, AreDrainedBySynchronize) {
  synchronize(compute_);
  synchronize(copies_);
  const Tensor x = Tensor::full({1009}, 3, DType::float32, GetParam());
  const Tensor y = scale(x, 2);
  synchronize(compute_);
  EXPECT_EQ(y.to_vector<float>(), std::vector<float>(1009, 6.0F));
}

TEST_P(Streams, ReachAnEventOnceRecorded) {
  Event event;
  EXPECT_FALSE(event.recorded());
  event.record(compute_);
  EXPECT_TRUE(event.recorded());
  event.synchronize();
  event.wait(copies_);
  event.wait({{DeviceType::cpu, 1}, 0});
  synchronize(copies_);
}

// Each waits for the other, again and again: a wait that nobody ends would hang here.
TEST_P(Streams, WaitForEachOther) {
  Event forth, back;
  Tensor x = Tensor::full({7}, 1, DType::float64, GetParam());
  for (int round = 0; round < 10; ++round) {
    x = scale(x, 2);
    forth.record(compute_);
    forth.wait(copies_);
    back.record(copies_);
    back.wait(compute_);
  }
  EXPECT_EQ(x.to_vector<double>(), std::vector<double>(7, 1024.0));
}

// A copy is the same point, also after the first has moved on.
TEST_P(Streams, KnowACopiedEvent) {
  Event first;
  first.record(compute_);
  const Event copy = first;
  EXPECT_TRUE(copy.recorded());
  copy.synchronize();
  first.record(copies_);
  copy.wait(copies_);
  first.synchronize();
}

TEST_P(Streams, NeedARecordedEvent) {
  const Event never;
  Event once;
  once.record(compute_);
  EXPECT_TRUE(fails_with({"never recorded"}, [&] { never.wait(compute_); }));
  EXPECT_TRUE(fails_with({"never recorded", "cpu:1"}, [&] { never.wait({{DeviceType::cpu, 1}, 0}); }));
  EXPECT_TRUE(fails_with({"never recorded"}, [&] { never.synchronize(); }));
  EXPECT_TRUE(fails_with<UsageError>({"cpu:200"}, [&] { once.record({{DeviceType::cpu, 200}, 0}); }));
}

}  // namespace
}  // namespace stagecoach
