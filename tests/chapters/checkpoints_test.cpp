// Checkpoints: what is damaged or unfinished is left out, and the one before it is taken.

#include "chapters/common/checkpoints.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "core/error.h"
#include "nn/safetensors.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;
using test::fails_with;
using test::random_tensor;
using test::read_bytes;
using test::same_bytes;
using test::write_bytes;

class CheckpointsOfTwoRanks : public ::testing::Test {
 protected:
  void save(std::int64_t epoch, std::int64_t step = 0) {
    const Progress progress = at(epoch, step);
    checkpoints_.begin(progress);
    for (const int rank : {0, 1}) {
      checkpoints_.write_shard(progress, rank, part(epoch, rank));
    }
    checkpoints_.commit(progress, {0, 1});
  }
  static Progress at(std::int64_t epoch, std::int64_t step = 0) {
    return {.epoch = epoch, .step = step, .loss_sum = 0.1 * static_cast<double>(epoch), .peak_bytes = {3, 4}};
  }
  static TrainingState part(std::int64_t epoch, int rank) {
    const std::string name = "layer" + std::to_string(rank) + ".weight";
    const Tensor tensor = random_tensor({3, 2}, name + std::to_string(epoch));
    return {{{name, tensor}}, {{name + ".velocity", tensor}}, {{std::to_string(rank) + ".fc.q", tensor}}};
  }
  /// Checks that the newest one is that of `epoch`, and whole.
  void expect_newest(std::int64_t epoch, std::size_t skipped) {
    const Checkpoints::Found found = checkpoints_.newest();
    EXPECT_EQ(found.progress.epoch, epoch);
    EXPECT_EQ(found.progress.loss_sum, 0.1 * static_cast<double>(epoch));
    EXPECT_EQ(found.progress.peak_bytes, (std::vector<std::int64_t>{3, 4}));
    EXPECT_EQ(found.skipped.size(), skipped);
    ASSERT_EQ(found.state.weights.size(), 2U);
    for (const int rank : {0, 1}) {
      const TrainingState wanted = part(epoch, rank);
      const auto place = static_cast<std::size_t>(rank);
      EXPECT_EQ(found.state.weights[place].first, wanted.weights[0].first);
      EXPECT_TRUE(same_bytes(found.state.weights[place].second, wanted.weights[0].second));
      EXPECT_TRUE(same_bytes(found.state.optimizer[place].second, wanted.optimizer[0].second));
      EXPECT_EQ(found.state.memory[place].first, wanted.memory[0].first);
      EXPECT_TRUE(same_bytes(found.state.memory[place].second, wanted.memory[0].second));
    }
  }
  fs::path file(std::int64_t epoch, const std::string& name) const {
    return folder_.path() / ("epoch-" + std::to_string(epoch) + "-step-0") / name;
  }

  test::TemporaryFolder folder_;
  Checkpoints checkpoints_{folder_.path(), "the training"};
};

TEST_F(CheckpointsOfTwoRanks, TheNewestIsTakenAndTheOneBeforeKept) {
  EXPECT_TRUE(fails_with<DataError>({"no checkpoint there yet"}, [&] { checkpoints_.newest(); }));
  for (const std::int64_t epoch : {1, 2, 9, 10}) {
    save(epoch);
    expect_newest(epoch, 0);
  }
  EXPECT_FALSE(fs::exists(file(2, "")));
  EXPECT_TRUE(fs::exists(file(9, "manifest.safetensors")));
  EXPECT_EQ(checkpoints_.at(9, 0).progress.epoch, 9);
}

TEST_F(CheckpointsOfTwoRanks, CutAtAnyByteOrFlippedTheOlderIsTaken) {
  save(1);
  save(2);
  for (const char* name : {"shard_0.safetensors", "shard_1.safetensors", "manifest.safetensors"}) {
    const std::string good = read_bytes(file(2, name));
    for (std::size_t at = 0; at < good.size(); ++at) {
      write_bytes(file(2, name), good.substr(0, at));
      expect_newest(1, 1);
      std::string flipped = good;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 8)));
      write_bytes(file(2, name), flipped);
      expect_newest(1, 1);
    }
    fs::remove(file(2, name));
    expect_newest(1, 1);
    write_bytes(file(2, name), good);
    expect_newest(2, 0);
  }
}

TEST_F(CheckpointsOfTwoRanks, AnUnfinishedOneIsNone) {
  save(1);
  checkpoints_.begin(at(2));
  expect_newest(1, 1);
  checkpoints_.write_shard(at(2), 0, part(2, 0));
  checkpoints_.write_shard(at(2), 1, part(2, 1));
  expect_newest(1, 1);
  checkpoints_.commit(at(2), {0, 1});
  expect_newest(2, 0);
  checkpoints_.begin(at(2));  // written once more, and killed
  expect_newest(1, 1);
}

TEST_F(CheckpointsOfTwoRanks, AnUnfinishedFirstOneIsNoneYet) {
  checkpoints_.begin(at(2));
  EXPECT_TRUE(
      fails_with<DataError>({"no checkpoint there yet; start the run anew", "epoch-2-step-0: was never finished"},
                            [&] { checkpoints_.newest(); }));
}

TEST_F(CheckpointsOfTwoRanks, WhenNoneIsWholeAllReasonsAreGiven) {
  save(1);
  save(2);
  fs::remove(file(1, "shard_1.safetensors"));
  write_bytes(file(2, "shard_0.safetensors"), "");
  EXPECT_TRUE(fails_with<DataError>({"none is whole", "epoch-2-step-0/shard_0", "epoch-1-step-0/shard_1"},
                                    [&] { checkpoints_.newest(); }));
}

TEST_F(CheckpointsOfTwoRanks, OfAnotherTrainingAreRefused) {
  save(1);
  const Checkpoints other(folder_.path(), "another training");
  EXPECT_TRUE(fails_with<DataError>({"other settings"}, [&] { other.newest(); }));
}

TEST_F(CheckpointsOfTwoRanks, AShardOfAnotherCheckpointIsNoneOfThis) {
  save(1);
  save(2);
  fs::copy(file(1, "shard_1.safetensors"), file(2, "shard_1.safetensors"), fs::copy_options::overwrite_existing);
  expect_newest(1, 1);
}

// A run went on from an older one, as a newer one was damaged: what it saves counts.
TEST_F(CheckpointsOfTwoRanks, ADamagedOneDoesNotStandInTheWay) {
  save(3);
  save(4);
  write_bytes(file(4, "shard_1.safetensors"), "");
  save(3, 7);
  EXPECT_EQ(checkpoints_.newest().progress.step, 7);
  EXPECT_FALSE(fs::exists(file(4, "")));
  EXPECT_TRUE(fs::exists(file(3, "manifest.safetensors")));
}

}  // namespace
}  // namespace stagecoach
