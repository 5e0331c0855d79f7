// The choice among the levels of processors that were built, and what all of them share.

#include "core/kernels/levels.h"

#include <gtest/gtest.h>

#include "core/asynchronous.h"
#include "core/kernels/cpu/tables.h"
#include "tests/support/devices.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

const cpu::Level kLevels[] = {{"x86-64", true, nullptr}, {"x86-64-v3", true, nullptr}, {"x86-64-v4", false, nullptr}};

TEST(Levels, TheHighestThatIsSupportedIsChosen) {
  for (const char* wanted : {static_cast<const char*>(nullptr), ""}) {
    EXPECT_EQ(cpu::choose_level(kLevels, wanted).name, "x86-64-v3");
  }
  EXPECT_EQ(cpu::choose_level(std::span(kLevels).first(1), nullptr).name, "x86-64");
}

TEST(Levels, TheEnvironmentChoosesAnother) {
  EXPECT_EQ(cpu::choose_level(kLevels, "x86-64").name, "x86-64");
  EXPECT_EQ(cpu::choose_level(kLevels, "x86-64-v3").name, "x86-64-v3");
}

TEST(Levels, OneThatWasNotBuiltIsRefused) {
  EXPECT_TRUE(test::fails_with<UsageError>({"STAGECOACH_LEVEL", "x86-64, x86-64-v3, x86-64-v4", "got 'x86-64-v2'"},
                                           [] { cpu::choose_level(kLevels, "x86-64-v2"); }));
}

TEST(Levels, OneThatTheProcessorLacksIsRefused) {
  EXPECT_TRUE(test::fails_with<UsageError>({"this processor supports (x86-64, x86-64-v3)", "got 'x86-64-v4'"},
                                           [] { cpu::choose_level(kLevels, "x86-64-v4"); }));
}

/// The levels that run here.
std::vector<const cpu::Level*> supported_levels() {
  std::vector<const cpu::Level*> all;
  for (const cpu::Level& level : cpu::built_levels()) {
    if (level.is_supported) {
      all.push_back(&level);
    }
  }
  return all;
}

TEST(Levels, ThoseBuiltHaveDistinctTables) {
  for (const cpu::Level* a : supported_levels()) {
    for (const cpu::Level* b : supported_levels()) {
      EXPECT_EQ(a->tables()->kernels.linear == b->tables()->kernels.linear, a == b) << a->name << ", " << b->name;
    }
  }
}

TEST(Levels, AnErrorOfAKernelIsCaughtByItsType) {
  const Tensor logits = test::random_tensor({2, 3}, "logits", DType::float32);
  const Tensor labels = test::labels_of({1, 3});
  for (const cpu::Level* level : supported_levels()) {
    Tensor loss = Tensor::zeros({}, DType::float32);
    Tensor probabilities = Tensor::zeros({2, 3}, DType::float32);
    EXPECT_TRUE(test::fails_with<Error>({"label", "3", "core/kernels/cpu/losses.cpp"}, [&] {
      level->tables()->kernels.cross_entropy(logits, labels, 1, loss, probabilities);
    })) << level->name;
  }
}

TEST(Levels, AsynchronousDevicesTakeEach) {
  const Device device = test::fresh_device();
  for (const cpu::Level* level : supported_levels()) {
    const Tensor x = test::random_tensor({5, 7}, "x", DType::float32, device);
    Tensor expected = Tensor::zeros({5, 7}, DType::float32, device);
    level->tables()->kernels.scale(x, 3, expected);
    const AsynchronousDevices asynchronous({device});
    Tensor y = Tensor::zeros({5, 7}, DType::float32, device);
    level->tables()->queued.scale(x, 3, y);
    EXPECT_TRUE(test::same_bytes(y, expected)) << level->name;
  }
}

}  // namespace
}  // namespace stagecoach
