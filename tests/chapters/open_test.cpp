#include "chapters/common/open.h"

#include <gtest/gtest.h>

#include "datasets/generated.h"

namespace stagecoach {
namespace {

/// Seconds that a loader waited for its thread, in an epoch.
double waited(Loader loader) {
  loader.start_epoch(1);
  while (loader.next()) {
  }
  return loader.waited();
}

TEST(Open, LoadersHaveAThreadWhereItTakesNoRanksCore) {
  const Dataset data = generate({.train = 64, .test = 1}).train;
  const TrainingSettings training{.batch_size = 8};
  const WorldSettings all_cores{.ranks = 128, .threads = 1024};
  EXPECT_EQ(waited(make_loader(training, all_cores, data, LoaderFor::training)), 0);
  EXPECT_EQ(waited(make_loader(training, all_cores, data, LoaderFor::testing)), 0);
  for (const WorldSettings& world : {WorldSettings{.ranks = 128, .clock = ClockKind::virtual_time, .threads = 1024},
                                     WorldSettings{.ranks = 128, .device = "cuda", .threads = 1024}}) {
    EXPECT_GT(waited(make_loader(training, world, data, LoaderFor::training)), 0);
    EXPECT_GT(waited(make_loader(training, world, data, LoaderFor::testing)), 0);
  }
}

}  // namespace
}  // namespace stagecoach
