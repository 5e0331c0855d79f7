/// @file
/// A checkpoint is bound to its data: --resume refuses other data, unless --accept-new-data is given.

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include "tests/chapters/program.h"

namespace stagecoach::test {
namespace {

using Flags = std::vector<std::string>;

class ResumeData : public ProgramTest {
 protected:
  /// Trains an epoch of 100 images.
  void train_an_epoch() {
    make_data(100, 50);
    const Outcome outcome = ch01({"--data", "data", "--epochs", "1", "--out", "run"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  }
  /// Overwrites the byte at `position` of a file of the data.
  void overwrite(const char* file, std::streamoff position, char byte) {
    std::fstream stream(folder() / "data" / file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(position);
    stream.put(byte);
  }
  void expect_refused(const std::string& why) {
    const Outcome refused = ch01({"--resume", "run", "--epochs", "2"});
    EXPECT_EQ(refused.exit_code, 3);
    EXPECT_NE(refused.err.find(why), std::string::npos) << refused.err;
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
  }
};

TEST_F(ResumeData, RenamedClassesAreRefused) {
  train_an_epoch();
  std::string names;
  for (int i = 0; i < 10; ++i) {
    names += fmt::format("other{}\n", i);
  }
  std::ofstream(folder() / "data/batches.meta.txt") << names;
  expect_refused("class 0 of the training set was 'circle' and is 'other0'");
}

TEST_F(ResumeData, ChangedImagesAndLabelsAreRefused) {
  train_an_epoch();
  const std::string before = read_bytes(folder() / "data/data_batch_1.bin");
  overwrite("data_batch_1.bin", 5, static_cast<char>(before[5] + 1));
  expect_refused("the training set has the same 10 classes and numbers of images, but other images of");
  overwrite("data_batch_1.bin", 5, before[5]);
  overwrite("data_batch_1.bin", 0, static_cast<char>((before[0] + 1) % 10));
  expect_refused("images and has");
  overwrite("data_batch_1.bin", 0, before[0]);
  overwrite("test_batch.bin", 7, 'x');
  overwrite("test_batch.bin", 8, 'y');
  expect_refused("the test set has the same 10 classes and numbers of images, but other images of");
}

TEST_F(ResumeData, AnotherNumberOfImagesIsRefusedUnlessAccepted) {
  train_an_epoch();
  make_data(110, 50);
  expect_refused("of the training set had 10 images and has 11");
  const Outcome accepted = ch01({"--resume", "run", "--epochs", "2", "--accept-new-data"});
  EXPECT_EQ(accepted.exit_code, 0) << accepted.err;
  EXPECT_NE(accepted.out.find("note: --accept-new-data: the data has changed"), std::string::npos) << accepted.out;
  const Outcome resumed = ch01({"--resume", "run", "--epochs", "3"});  // bound to the new data from here on
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(resumed.out.find("note:"), std::string::npos) << resumed.out;
}

TEST_F(ResumeData, TheSameDataMayBeElsewhere) {
  train_an_epoch();
  std::filesystem::rename(folder() / "data", folder() / "moved");
  const Outcome resumed = ch01({"--resume", "run", "--epochs", "2", "--data", "moved"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(resumed.out.find("note:"), std::string::npos) << resumed.out;
}

TEST_F(ResumeData, EveryChapterRefuses) {
  for (const std::string& program : {kCh02, kCh03, kCh04, kCh05, kCh06, kCh07, kCh08}) {
    make_data(64, 16);
    const std::string out = std::filesystem::path(program).filename();
    ASSERT_EQ(run(program, {"--data", "data", "--epochs", "1", "--ranks", "2", "--out", out}).exit_code, 0) << out;
    make_data(64, 17);
    const Outcome refused = run(program, {"--resume", out, "--epochs", "2"});
    EXPECT_EQ(refused.exit_code, 3) << out << refused.err;
    EXPECT_NE(refused.err.find("of the test set had"), std::string::npos) << refused.err;
  }
}

TEST_F(ResumeData, AcceptingNeedsARunToResume) {
  const Outcome refused = ch01({"--smoke", "--accept-new-data"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("--accept-new-data without --resume"), std::string::npos) << refused.err;
}

}  // namespace
}  // namespace stagecoach::test
