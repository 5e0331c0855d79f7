// A DeviceLoader gives a Loader's batches, on the device.

#include "datasets/device_loader.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/allocator.h"
#include "core/cuda_backend.h"
#include "datasets/generated.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::same_bytes;

class DeviceLoaderOn : public ::testing::TestWithParam<Device> {
 protected:
  /// 23 images in batches of 5: the last one is ragged.
  Loader loader(bool prefetch = true) const {
    return Loader(data_.train, {.batch_size = 5, .seed = 3, .augment = true, .prefetch = prefetch});
  }
  /// Compares what is left of the epoch under way.
  void expect_same(DeviceLoader& there, Loader& here) const {
    while (const auto expected = here.next()) {
      const auto batch = there.next();
      ASSERT_TRUE(batch);
      EXPECT_EQ(batch->inputs.device(), GetParam());
      EXPECT_TRUE(same_bytes(batch->inputs, expected->inputs)) << "batch " << expected->index;
      EXPECT_TRUE(same_bytes(batch->targets, expected->targets)) << "batch " << expected->index;
      EXPECT_EQ(batch->index, expected->index);
      EXPECT_EQ(batch->global_size, expected->global_size);
    }
    EXPECT_FALSE(there.next());
    EXPECT_FALSE(there.next()) << "and again";
  }
  const TrainTest data_ = generate({.train = 23, .test = 1});
};
INSTANTIATE_TEST_SUITE_P(Devices, DeviceLoaderOn, ::testing::ValuesIn(test::devices()), test::device_name);

TEST_P(DeviceLoaderOn, GivesTheLoadersBatches) {
  DeviceLoader there(loader(), GetParam());
  Loader here = loader();
  EXPECT_EQ(there.batch_count(), 5);
  for (const std::int64_t epoch : {1, 2, 7}) {
    there.start_epoch(epoch);
    here.start_epoch(epoch);
    expect_same(there, here);
  }
}

TEST_P(DeviceLoaderOn, BeginsInTheMidstOfAnEpoch) {
  DeviceLoader there(loader(), GetParam());
  Loader here = loader();
  for (const std::int64_t first : {4, 2, 5, 0}) {  // the ragged batch first: later ones need more memory
    there.start_epoch(1, first);
    here.start_epoch(1, first);
    expect_same(there, here);
  }
}

TEST_P(DeviceLoaderOn, LeavesAnEpochBehind) {
  DeviceLoader there(loader(false), GetParam());
  Loader here = loader(false);
  there.start_epoch(1);
  ASSERT_TRUE(there.next());
  ASSERT_TRUE(there.next());
  there.start_epoch(2);
  here.start_epoch(2);
  expect_same(there, here);
}

// Else the training thread would wait for each copy, or copy each batch once more.
TEST_P(DeviceLoaderOn, MakesBatchesWhereTheDeviceCopiesFrom) {
  if (GetParam().type == DeviceType::cpu) {
    GTEST_SKIP() << "a CPU's batches are not copied";
  }
  const auto& pinned = *cuda::pinned_allocator(GetParam());
  DeviceLoader there(loader(false), GetParam());
  const std::size_t before = pinned.stats().current_bytes;
  there.start_epoch(1);
  const auto batch = there.next();
  EXPECT_GE(pinned.stats().current_bytes - before, batch->inputs.bytes() + batch->targets.bytes());
}

// Work that was given to the device before the next call sees the batch, though its memory takes another one soon.
TEST_P(DeviceLoaderOn, WorkGivenBeforeTheNextCallSeesItsBatch) {
  DeviceLoader there(loader(), GetParam());
  Loader here = loader();
  there.start_epoch(1);
  here.start_epoch(1);
  std::vector<Tensor> copies;
  while (const auto batch = there.next()) {
    copies.push_back(batch->inputs.clone());
  }
  ASSERT_EQ(copies.size(), 5U);
  for (const Tensor& copy : copies) {
    EXPECT_TRUE(same_bytes(copy, here.next()->inputs));
  }
}

// Augmented on the host or gathered on the device: equal bytes, for a shard, and in the middle of an epoch.
TEST_P(DeviceLoaderOn, MakesTheSameBatchesOfDataOnTheDevice) {
  for (const bool augment : {false, true}) {
    LoaderSettings settings{.batch_size = 5, .seed = 3, .augment = augment, .shard = 1, .shards = 2, .image_size = 32};
    Loader here(data_.train, settings);
    settings.on_device = true;
    DeviceLoader there(Loader(data_.train, settings), GetParam());
    for (const std::int64_t first : {0, 2, 4}) {
      there.start_epoch(7, first);
      here.start_epoch(7, first);
      expect_same(there, here);
    }
  }
}

TEST_P(DeviceLoaderOn, GathersResizedImagesAndOtherSamples) {
  const auto expect_equal_batches = [&](const Dataset& data, LoaderSettings settings) {
    Loader here(data, settings);
    settings.on_device = true;
    DeviceLoader there(Loader(data, settings), GetParam());
    there.start_epoch(1);
    here.start_epoch(1);
    expect_same(there, here);
  };
  expect_equal_batches(data_.train, {.batch_size = 5, .image_size = 20});
  expect_equal_batches(data_.train, {.batch_size = 5, .inputs = false});
  const Tensor tokens = Tensor::from(std::vector<std::int32_t>{1, 2, 3, 4, 5, 6}, {3, 2});
  const Tensor numbers = Tensor::from(std::vector<double>{0.5, 0.25, -1}, {3, 1, 1, 1, 1});
  expect_equal_batches({tokens, numbers}, {.batch_size = 2});
}

TEST_P(DeviceLoaderOn, HoldsTheDataOnceItHasBegun) {
  DeviceLoader there(Loader(data_.train, {.batch_size = 5, .on_device = true, .prefetch = false}), GetParam());
  const std::size_t before = allocator(GetParam()).stats().current_bytes;
  there.start_epoch(1);
  EXPECT_GE(allocator(GetParam()).stats().current_bytes - before, data_.train.inputs.bytes());
  const std::size_t begun = allocator(GetParam()).stats().current_bytes;
  there.start_epoch(2);
  EXPECT_EQ(allocator(GetParam()).stats().current_bytes, begun);
}

TEST(DeviceLoader, RefusesOnTheDeviceWhatOnlyTheHostCanDo) {
  const Dataset data = generate({.train = 3, .test = 1}).train;
  const auto refusal = [&](const LoaderSettings& settings) -> std::string {
    try {
      Loader loader(data, settings);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(refusal({.augment = true, .image_size = 16, .on_device = true}).find("resized after they are augmented"),
            std::string::npos);
  EXPECT_NE(
      refusal({.on_device = true, .transform = [](Tensor&, Tensor&, const SampleRandom&) {}}).find("no transform"),
      std::string::npos);
  EXPECT_EQ(refusal({.augment = true, .image_size = 32, .on_device = true}), "");
}

TEST_P(DeviceLoaderOn, PassesOnErrors) {
  DeviceLoader there(loader(), GetParam());
  EXPECT_THROW(there.start_epoch(1, 6), UsageError);
  EXPECT_THROW(there.next(), Error) << "before the first epoch";
}

}  // namespace
}  // namespace stagecoach
