// Checkpoints: what is damaged or unfinished is left out, and the one before it is taken.

#include "parallel/training/checkpoints.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "core/base/error.h"
#include "nn/safetensors.h"
#include "parallel/launch/launch.h"
#include "parallel/training/training_state.h"
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
    return {{"model." + name, tensor}, {"optimizer." + name + ".velocity", tensor}};
  }
  /// Checks that the newest one is that of `epoch`, and whole.
  void expect_newest(std::int64_t epoch, std::size_t skipped) {
    const Checkpoints::Found found = checkpoints_.newest();
    EXPECT_EQ(found.progress.epoch, epoch);
    EXPECT_EQ(found.progress.loss_sum, 0.1 * static_cast<double>(epoch));
    EXPECT_EQ(found.progress.peak_bytes, (std::vector<std::int64_t>{3, 4}));
    EXPECT_EQ(found.skipped.size(), skipped);
    TrainingState wanted = part(epoch, 0);
    const TrainingState of_rank_1 = part(epoch, 1);
    wanted.insert(wanted.end(), of_rank_1.begin(), of_rank_1.end());
    ASSERT_EQ(found.state.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(found.state[i].first, wanted[i].first);
      EXPECT_TRUE(same_bytes(found.state[i].second, wanted[i].second));
    }
  }
  fs::path file(std::int64_t epoch, const std::string& name) const {
    return folder_.path() / ("epoch-" + std::to_string(epoch) + "-step-0") / name;
  }

  /// Returns what the training of these checkpoints expects to find in one.
  static StateOutline outline() {
    StateOutline expected;
    const auto communicator = self_communicator(Device{});
    for (const int rank : {0, 1}) {
      expected.merge(gather_outline(*communicator, part(1, rank)));
    }
    return expected;
  }

  test::TemporaryFolder folder_;
  Checkpoints checkpoints_{folder_.path(), "the training"};
  const StateOutline expected_ = outline();
};

TEST_F(CheckpointsOfTwoRanks, TheNewestIsTakenAndTheOneBeforeKept) {
  EXPECT_TRUE(fails_with<DataError>({"no checkpoint has been written yet"}, [&] { checkpoints_.newest(); }));
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
  EXPECT_TRUE(fails_with<DataError>(
      {"no checkpoint has been written yet; start the run again", "epoch-2-step-0: the checkpoint was never completed"},
      [&] { checkpoints_.newest(); }));
}

TEST_F(CheckpointsOfTwoRanks, WhenNoneIsWholeAllReasonsAreGiven) {
  save(1);
  save(2);
  fs::remove(file(1, "shard_1.safetensors"));
  write_bytes(file(2, "shard_0.safetensors"), "");
  EXPECT_TRUE(
      fails_with<DataError>({"expected a complete checkpoint", "epoch-2-step-0/shard_0", "epoch-1-step-0/shard_1"},
                            [&] { checkpoints_.newest(); }));
}

TEST_F(CheckpointsOfTwoRanks, OfAnotherTrainingAreRefused) {
  save(1);
  const Checkpoints other(folder_.path(), "another training");
  EXPECT_TRUE(fails_with<DataError>({"settings other than those in config.json"}, [&] { other.newest(); }));
}

TEST_F(CheckpointsOfTwoRanks, AShardOfAnotherCheckpointIsNoneOfThis) {
  save(1);
  save(2);
  fs::copy(file(1, "shard_1.safetensors"), file(2, "shard_1.safetensors"), fs::copy_options::overwrite_existing);
  expect_newest(1, 1);
}

// Names that a user gives to copies, and that look like a checkpoint's to one who does not read them to the end.
const char* const kCopies[] = {"epoch-9-step-0-good", "epoch-9-step-0.bak",
                               "epoch-09-step-0",     "epoch-+9-step-0",
                               "epoch- 9-step-0",     "epoch-9-step--1",
                               "Epoch-9-step-0",      "my-epoch-9-step-0",
                               "epoch-9-step-0 ",     "epoch-9-step-0x1",
                               "epoch-9-step-",       "epoch-9",
                               "epoch-9-step-0\n",    "epoch-99999999999999999999-step-0"};

TEST_F(CheckpointsOfTwoRanks, OfOtherNamesAreTheUsers) {
  save(1);
  for (const char* copy : kCopies) {
    fs::copy(file(1, ""), folder_.path() / copy);
  }
  test::write_bytes(folder_.file("notes.txt"), "mine");
  test::write_bytes(folder_.file("epoch-8-step-0"), "a file");
  expect_newest(1, 0);
  save(2);
  save(3);
  expect_newest(3, 0);
  EXPECT_FALSE(fs::exists(file(1, "")));
  for (const char* copy : kCopies) {
    EXPECT_TRUE(fs::exists(folder_.path() / copy / "manifest.safetensors")) << copy;
    EXPECT_TRUE(fs::exists(folder_.path() / copy / "shard_1.safetensors")) << copy;
  }
  EXPECT_EQ(read_bytes(folder_.path() / "notes.txt"), "mine");
  EXPECT_EQ(read_bytes(folder_.path() / "epoch-8-step-0"), "a file");
}

TEST_F(CheckpointsOfTwoRanks, WhatTheUserKeepsInOneStays) {
  const char* const kept[] = {"notes.txt", "shard_0.safetensors.bak", "shard_00.safetensors", "manifest.safetensors~"};
  save(1);
  for (const char* name : kept) {
    write_bytes(file(1, name), "mine");
  }
  fs::create_directory(file(1, "figures"));
  save(2);
  save(3);
  for (const char* name : kept) {
    EXPECT_EQ(read_bytes(file(1, name)), "mine") << name;
  }
  EXPECT_TRUE(fs::exists(file(1, "figures")));
  for (const char* name : {"manifest.safetensors", "shard_0.safetensors", "shard_1.safetensors"}) {
    EXPECT_FALSE(fs::exists(file(1, name))) << name;
  }
  expect_newest(3, 0);
  save(1);  // in the same folder again
  EXPECT_EQ(read_bytes(file(1, "notes.txt")), "mine");
}

TEST_F(CheckpointsOfTwoRanks, ALinkedOneIsReadAndNotRemoved) {
  save(1);
  fs::rename(file(1, ""), folder_.path() / "elsewhere");
  fs::create_directory_symlink("elsewhere", folder_.path() / "epoch-1-step-0");
  expect_newest(1, 0);
  save(2);
  save(3);
  EXPECT_TRUE(fs::exists(folder_.path() / "epoch-1-step-0/manifest.safetensors"));
}

TEST_F(CheckpointsOfTwoRanks, OnesUnderTheNameOfOthersAreLeftOut) {
  save(1);
  fs::copy(file(1, ""), file(2, ""));
  expect_newest(1, 1);
}

TEST_F(CheckpointsOfTwoRanks, WhatKilledProgramsLeftIsRemoved) {
  save(1);
  write_bytes(folder_.file(".stagecoach-12-3"), "half");
  write_bytes(file(1, ".stagecoach-12-4"), "half");
  fs::create_directory(folder_.path() / "mine");
  write_bytes(folder_.file("mine/.stagecoach-12-5"), "the user's");
  checkpoints_.remove_abandoned();
  EXPECT_FALSE(fs::exists(folder_.path() / ".stagecoach-12-3"));
  EXPECT_FALSE(fs::exists(file(1, ".stagecoach-12-4")));
  EXPECT_TRUE(fs::exists(folder_.path() / "mine/.stagecoach-12-5"));
}

/// A way in which a shard that is a valid file, of the right checkpoint, can be the wrong one.
struct WrongShard {
  const char* what;
  void (*spoil)(NamedTensors& tensors);
  const char* reason;
};

class WrongShards : public CheckpointsOfTwoRanks, public ::testing::WithParamInterface<WrongShard> {};

// A shard has, in this order: model.layer1.weight, optimizer.layer1.weight.velocity.
INSTANTIATE_TEST_SUITE_P(
    Ways, WrongShards,
    ::testing::Values(WrongShard{"NoTensors", [](NamedTensors& tensors) { tensors.clear(); },
                                 "lacks optimizer layer1.weight.velocity float64[3, 2] and 1 more"},
                      WrongShard{"NoWeight", [](NamedTensors& tensors) { tensors.erase(tensors.begin()); },
                                 "lacks weights layer1.weight"},
                      WrongShard{"OtherShape",
                                 [](NamedTensors& tensors) {
                                   tensors[0].second = Tensor::zeros({2, 3});
                                 },
                                 "lacks weights layer1.weight float64[3, 2]"},
                      WrongShard{"OtherType",
                                 [](NamedTensors& tensors) {
                                   tensors[1].second = Tensor::zeros({3, 2}, DType::float32);
                                 },
                                 "lacks optimizer layer1.weight.velocity float64[3, 2]"},
                      WrongShard{"OtherModel", [](NamedTensors& tensors) { tensors[0].first = "model.conv.weight"; },
                                 "lacks weights layer1.weight"},
                      WrongShard{
                          "MoreThanTheModel",
                          [](NamedTensors& tensors) { tensors.emplace_back("model.conv.weight", Tensor::zeros({3})); },
                          "has an extra weights conv.weight float32[3]"},
                      WrongShard{"TensorsOfTheOtherShard",
                                 [](NamedTensors& tensors) {
                                   tensors.emplace_back("model.layer0.weight", Tensor::zeros({3, 2}));
                                 },
                                 "has an extra weights layer0.weight float32[3, 2]"}),
    [](const auto& way) { return way.param.what; });

TEST_P(WrongShards, MakeTheOlderOneCount) {
  save(1);
  save(2);
  EXPECT_EQ(checkpoints_.newest(&expected_).progress.epoch, 2);
  TensorFile shard = load_tensors(file(2, "shard_1.safetensors").string());
  GetParam().spoil(shard.tensors);
  save_tensors(file(2, "shard_1.safetensors").string(), shard);
  const Checkpoints::Found found = checkpoints_.newest(&expected_);
  EXPECT_EQ(found.progress.epoch, 1);
  ASSERT_EQ(found.skipped.size(), 1U);
  EXPECT_NE(found.skipped[0].find("epoch-2-step-0: does not match the model: it "), std::string::npos);
  EXPECT_NE(found.skipped[0].find(GetParam().reason), std::string::npos) << found.skipped[0];
  EXPECT_EQ(found.skipped[0].find('\n'), std::string::npos);
}

TEST_F(CheckpointsOfTwoRanks, AManifestOfWrongContentsMakesTheOlderOneCount) {
  save(1);
  save(2);
  const std::string path = file(2, "manifest.safetensors").string();
  const TensorFile good = load_tensors(path);
  for (const char* ranks : {"", "0", "0,0", "0,1,2", "x", "0,", "-1", "99999999999999999999"}) {
    TensorFile wrong = good;
    wrong.metadata["ranks"] = ranks;
    save_tensors(path, wrong);
    EXPECT_EQ(checkpoints_.newest(&expected_).progress.epoch, 1) << ranks;
  }
}

TEST_F(CheckpointsOfTwoRanks, AreReadByARankForItsOwnLayers) {
  save(1);
  const LayerRanks layers{{"layer0", 0}, {"layer1", 1}};
  const Checkpoints::Found found = checkpoints_.newest(&expected_, part_of_rank(layers, 1, Device{DeviceType::cpu, 1}));
  ASSERT_EQ(found.state.size(), 2U);
  EXPECT_EQ(found.state[0].first, "model.layer1.weight");
  EXPECT_EQ(found.state[0].second.device(), (Device{DeviceType::cpu, 1}));
  EXPECT_EQ(found.state[1].first, "optimizer.layer1.weight.velocity");
  EXPECT_EQ(found.contents.size(), 4U);
  const StatePart no_tensor{.keep = [](const std::string&) { return false; }};
  EXPECT_TRUE(checkpoints_.newest(&expected_, no_tensor).state.empty());
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
