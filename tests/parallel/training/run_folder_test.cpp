// The folder of a run: what happens when it is removed, replaced or half emptied while a run writes to it.

#include "parallel/training/run_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/base/error.h"
#include "nn/layers.h"
#include "nn/optimizer.h"
#include "nn/sequential.h"
#include "parallel/launch/launch.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;
using test::fails_with;
using test::read_bytes;
using test::write_bytes;

/// A run of one rank, saved by hand.
class RunFolders : public ::testing::Test {
 protected:
  void SetUp() override {
    model_.add("fc", std::make_shared<Linear>(3, 2));
    model_.materialize(1);
    optimizer_ = make_optimizer(OptimizerKind::sgd, model_.named_parameters(), 0.01, 0.9);
    options_.out = out().string();
    options_.config = R"({"program": "my_training"})";
    options_.training = R"({"seed": 1})";
  }
  fs::path out() const { return temporary_.path() / "run"; }
  fs::path file(const std::string& name) const { return out() / name; }

  void begin(RunFolder& folder) const {
    folder.lock();
    folder.begin({});
  }
  /// Saves at the end of epoch `epoch`.
  void save(RunFolder& folder, std::int64_t epoch) {
    const Progress next{.epoch = epoch + 1, .peak_bytes = {1}};
    const EpochResult result{.epoch = epoch, .peak_bytes = {1}};
    folder.save(*comm_, {}, next, whole_layers({}, model_, *optimizer_), &result);
  }
  /// Checks that a resumed run would go on after `epoch` epochs, and has the metrics of all of them.
  void expect_resumable(const RunFolder& folder, std::int64_t epoch) {
    const Checkpoints checkpoints(file("checkpoints"), options_.training);
    EXPECT_EQ(read_bytes(file("config.json")), options_.config);
    EXPECT_EQ(checkpoints.newest().progress.epoch, epoch + 1);
    EXPECT_NO_THROW(folder.require_resumable({.epoch = epoch + 1}, {}));
    const std::string metrics = read_bytes(file("metrics.jsonl"));
    EXPECT_EQ(std::count(metrics.begin(), metrics.end(), '\n'), epoch);
    EXPECT_TRUE(fs::exists(file("weights.safetensors")));
  }
  /// Saves once, does `what` to the folder, saves again, and checks that all is there.
  void expect_whole_after(const std::function<void()>& what) {
    RunFolder folder(options_, 0);
    begin(folder);
    save(folder, 1);
    what();
    save(folder, 2);
    expect_resumable(folder, 2);
    EXPECT_TRUE(fails_with<UsageError>({"another run is writing there"}, [&] { begin_another(); }));
  }
  void begin_another() const {
    RunFolder other(options_, 0);
    begin(other);
  }

  test::TemporaryFolder temporary_;
  RunOptions options_;

 private:
  std::unique_ptr<Communicator> comm_ = self_communicator(Device{});
  Sequential model_;
  std::unique_ptr<Optimizer> optimizer_;
};

TEST_F(RunFolders, ThatIsRemovedIsWrittenAnew) {
  expect_whole_after([&] { fs::remove_all(out()); });
}

TEST_F(RunFolders, ThatIsMovedIsWrittenAnewAndTheMovedOneStays) {
  const fs::path moved = temporary_.path() / "moved";
  expect_whole_after([&] { fs::rename(out(), moved); });
  EXPECT_EQ(Checkpoints(moved / "checkpoints", options_.training).newest().progress.epoch, 2);
}

TEST_F(RunFolders, ThatIsEmptiedIsFilledAgain) {
  for (const char* what : {"config.json", "checkpoints", "metrics.jsonl", "weights.safetensors", ""}) {
    expect_whole_after([&] {
      if (*what != '\0') {
        fs::remove_all(file(what));
        return;
      }
      for (const fs::directory_entry& entry : fs::directory_iterator(out())) {
        fs::remove_all(entry);
      }
    });
    fs::remove_all(out());
  }
}

TEST_F(RunFolders, WhoseConfigIsDamagedGetsItBack) {
  for (const char* damaged : {"", "{}", "no settings", "{\"program\": 3}"}) {
    expect_whole_after([&] { write_bytes(file("config.json"), damaged); });
    fs::remove_all(out());
  }
}

TEST_F(RunFolders, ThatIsReplacedKeepsWhatIsInTheNewOne) {
  expect_whole_after([&] {
    fs::rename(out(), temporary_.path() / "moved");
    fs::create_directory(out());
    write_bytes(file("notes.txt"), "mine");
    write_bytes(file("metrics.jsonl"), "of another run");
  });
  EXPECT_EQ(read_bytes(file("notes.txt")), "mine");
  EXPECT_EQ(read_bytes(file("earlier-1/metrics.jsonl")), "of another run");
}

TEST_F(RunFolders, ThatAnotherRunHasTakenIsLeftToIt) {
  RunFolder folder(options_, 0);
  begin(folder);
  save(folder, 1);
  fs::rename(out(), temporary_.path() / "moved");
  RunFolder other(options_, 0);
  begin(other);
  save(other, 1);
  const std::string metrics = read_bytes(file("metrics.jsonl"));
  const char* const words = "the folder was removed or replaced during this run, and another run is writing there now";
  EXPECT_TRUE(fails_with<DataError>({words}, [&] { save(folder, 2); }));
  EXPECT_TRUE(fails_with<DataError>({words}, [&] { folder.save_trace("{}"); }));
  EXPECT_EQ(read_bytes(file("metrics.jsonl")), metrics);
  EXPECT_FALSE(fs::exists(file("trace.json")));
  save(other, 2);
  expect_resumable(other, 2);
}

TEST_F(RunFolders, InWhosePlaceIsAFileIsAnError) {
  RunFolder folder(options_, 0);
  begin(folder);
  fs::remove_all(out());
  write_bytes(out(), "a file");
  EXPECT_TRUE(fails_with<DataError>({"`out`"}, [&] { save(folder, 1); }));
  EXPECT_EQ(read_bytes(out()), "a file");
}

TEST_F(RunFolders, WhatCannotBeReadBackIsNotCalledSaved) {
  RunFolder folder(options_, 0);
  begin(folder);
  save(folder, 1);
  save(folder, 2);
  const auto read_back = [&] { folder.require_resumable({.epoch = 3}, {}); };
  EXPECT_NO_THROW(read_back());
  const StateOutline expected{"all"};
  EXPECT_TRUE(fails_with<DataError>({"lacks all"}, [&] { folder.require_resumable({.epoch = 3}, &expected); }));
  const std::string good = read_bytes(file("checkpoints/epoch-3-step-0/shard_0.safetensors"));
  write_bytes(file("checkpoints/epoch-3-step-0/shard_0.safetensors"), "damaged");
  EXPECT_TRUE(fails_with<DataError>({"cannot be read back", "shard_0", "would continue in epoch 2"}, read_back));
  write_bytes(file("checkpoints/epoch-3-step-0/shard_0.safetensors"), good);
  fs::remove(file("config.json"));
  EXPECT_TRUE(fails_with<DataError>({"config.json"}, read_back));
}

TEST_F(RunFolders, WhatKilledProgramsLeftIsRemovedBelowToo) {
  {
    RunFolder folder(options_, 0);
    begin(folder);
    save(folder, 1);
  }
  options_.resume = options_.out;
  for (const char* name :
       {".stagecoach-1-1", "checkpoints/.stagecoach-1-1", "checkpoints/epoch-2-step-0/.stagecoach-1-1"}) {
    write_bytes(file(name), "half");
  }
  RunFolder folder(options_, 0);
  begin(folder);
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(out())) {
    EXPECT_NE(entry.path().filename(), ".stagecoach-1-1") << entry.path();
  }
}

TEST_F(RunFolders, AnEarlierRunIsMovedAndNothingElse) {
  fs::create_directories(out());
  write_bytes(temporary_.path() / "elsewhere.jsonl", "earlier");
  fs::create_symlink("../elsewhere.jsonl", file("metrics.jsonl"));
  write_bytes(file("flight_0.jsonl"), "earlier");
  write_bytes(file("ledger.csv"), "earlier");
  write_bytes(file("schedule_lowered.csv"), "earlier");
  write_bytes(file("flight_of_thought.txt"), "mine");
  fs::create_symlink("/dev/null", file("trace.json"));
  RunFolder folder(options_, 0);
  begin(folder);
  EXPECT_EQ(read_bytes(file("earlier-1/metrics.jsonl")), "earlier") << "by a link that leads to the same file";
  EXPECT_EQ(read_bytes(file("earlier-1/flight_0.jsonl")), "earlier");
  EXPECT_EQ(read_bytes(file("earlier-1/ledger.csv")), "earlier");
  EXPECT_EQ(read_bytes(file("earlier-1/schedule_lowered.csv")), "earlier");
  EXPECT_EQ(read_bytes(file("flight_of_thought.txt")), "mine");
  folder.save_trace("{}");
  EXPECT_TRUE(fs::is_symlink(file("trace.json"))) << "a device is written to";
}

TEST_F(RunFolders, AFifoWithoutAReaderIsAnErrorAndStays) {
  fs::create_directories(out());
  ASSERT_EQ(::mkfifo(file("metrics.jsonl").c_str(), 0600), 0);
  RunFolder folder(options_, 0);
  EXPECT_TRUE(fails_with<DataError>({"metrics.jsonl", "no process is reading this FIFO"}, [&] { begin(folder); }));
  EXPECT_TRUE(fs::is_fifo(file("metrics.jsonl")));
}

}  // namespace
}  // namespace stagecoach
