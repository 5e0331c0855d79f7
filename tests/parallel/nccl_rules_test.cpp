// Which worlds NCCL can serve, and which GPU each rank takes.

#include "parallel/launch/nccl_rules.h"

#include <gtest/gtest.h>

#include "core/base/phrases.h"
#include "tests/support/errors.h"

namespace stagecoach {
namespace {

using test::fails_with;

TEST(NcclRules, AskForAGpuARank) {
  const World world{.ranks = 4, .transport = Transport::nccl, .device = DeviceType::cuda};
  require_nccl(world, std::nullopt, 4);
  for (const int gpus : {1, 3}) {
    EXPECT_TRUE(fails_with<UsageError>(
        {"4 ranks", counted(gpus, "GPU").c_str(), "NCCL does not allow two ranks on one GPU; use transport `thread`"},
        [&] { require_nccl(world, std::nullopt, gpus); }));
  }
  EXPECT_EQ(nccl_device(std::nullopt, 3, 4), (Device{DeviceType::cuda, 3}));
}

TEST(NcclRules, AskForAGpuAProcess) {
  const World world{.ranks = 4, .transport = Transport::nccl, .device = DeviceType::cuda};
  const LaunchEnvironment process{3, 4, "torchrun", 1};
  require_nccl(world, process, 2);
  EXPECT_EQ(nccl_device(process, 3, 2), (Device{DeviceType::cuda, 1}));
  require_nccl(world, process, 1);  // a launcher may show each process its own
  EXPECT_EQ(nccl_device(process, 3, 1), (Device{DeviceType::cuda, 0}));
  EXPECT_TRUE(fails_with<UsageError>({"process 2 on this machine", "sees only 2 GPUs", "transport `thread`"}, [&] {
    require_nccl(world, LaunchEnvironment{3, 4, "torchrun", 2}, 2);
  }));
  EXPECT_TRUE(fails_with<UsageError>({"torchrun started 3 processes, the run has 4 ranks"}, [&] {
    require_nccl(world, LaunchEnvironment{1, 3, "torchrun", 1}, 2);
  }));
  require_gpu_each({"node1 0", "node2 0", "node1 1"});
  EXPECT_TRUE(fails_with<UsageError>(
      {"ranks 0 and 2 use the same GPU, node1 0", "NCCL does not allow two ranks on one GPU"}, [] {
        require_gpu_each({"node1 0", "node2 0", "node1 0"});
      }));
}

TEST(NcclRules, RefuseCpusAndTheVirtualClock) {
  EXPECT_TRUE(fails_with<UsageError>({"device `cuda`"}, [] { require_nccl({.ranks = 1}, std::nullopt, 1); }));
  const World world{.ranks = 1, .device = DeviceType::cuda, .clock = ClockKind::virtual_time};
  EXPECT_TRUE(fails_with<UsageError>({"a clock that computes time"}, [&] { require_nccl(world, std::nullopt, 1); }));
}

}  // namespace
}  // namespace stagecoach
