// Going on with other data than those that a run was trained on: refused, or accepted with a note.

#include <algorithm>
#include <filesystem>
#include <regex>

#include "nn/safetensors.h"
#include "tests/chapters/processes.h"
#include "tests/support/errors.h"

namespace stagecoach::test {
namespace {

namespace fs = std::filesystem;

const Flags kResume{"--resume", "run", "--epochs", "2"};
constexpr std::size_t kRecord = 3073;  // bytes: a label and the pixels of an image

/// Changes the lowest bit of the first pixel of a file in CIFAR-10's layout.
void change_pixel(const fs::path& file) {
  std::string records = read_bytes(file);
  records.at(1) = static_cast<char>(records[1] ^ 1);
  write_bytes(file, records);
}

void expect_other_data(const Outcome& outcome, const std::string& what) {
  EXPECT_EQ(outcome.exit_code, 3) << outcome.out;
  EXPECT_NE(outcome.err.find("--resume run: the data differ from those of the checkpoint: "), std::string::npos);
  EXPECT_NE(outcome.err.find(what), std::string::npos) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_EQ(outcome.out.find("Continues"), std::string::npos);
}

class ResumedData : public PipelineTest {
 protected:
  void SetUp() override {
    make_data(96, 20);
    ASSERT_EQ(train(kCh01, "run", {"--model", "mlp"}, "1").exit_code, 0);
  }
  fs::path images() const { return folder() / "data/data_batch_1.bin"; }
};

TEST_F(ResumedData, IsTheSameInAnotherFolder) {
  fs::rename(folder() / "data", folder() / "elsewhere");
  const Outcome resumed = ch01(joined(kResume, {"--data", "elsewhere"}));
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(resumed.out.find("note:"), std::string::npos) << resumed.out;
}

TEST_F(ResumedData, IsRefusedWhenItChanged) {
  const std::string weights = bytes("run/weights.safetensors");
  const std::string records = read_bytes(images());
  const std::string names = bytes("data/batches.meta.txt");

  write_bytes(folder() / "data/batches.meta.txt", "disc" + names.substr(names.find('\n')));
  expect_other_data(ch01(kResume), "class 0 was 'circle' and is now 'disc'");
  write_bytes(folder() / "data/batches.meta.txt", names);

  write_bytes(images(), records.substr(0, records.size() - kRecord));
  expect_other_data(ch01(kResume), "training images and now has");
  write_bytes(images(), records);

  change_pixel(images());
  expect_other_data(ch01(kResume), "but training images, their labels or their order changed");
  EXPECT_EQ(bytes("run/weights.safetensors"), weights);

  write_bytes(images(), records);
  EXPECT_EQ(ch01(kResume).exit_code, 0);
}

TEST_F(ResumedData, OfASmokeRunIsItsOwn) {
  ASSERT_EQ(ch01({"--smoke", "--epochs", "1", "--out", "smoke"}).exit_code, 0);
  const Outcome outcome = ch01({"--resume", "smoke", "--epochs", "2", "--data", "data"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("--smoke, here or in the run to resume, chooses its own data; leave out --data"),
            std::string::npos)
      << outcome.err;
  EXPECT_EQ(ch01({"--resume", "smoke", "--epochs", "2"}).exit_code, 0);
}

TEST_F(ResumedData, IsAcceptedKnowinglyWithANote) {
  change_pixel(images());
  const Outcome accepted = ch01(joined(kResume, {"--accept-new-data"}));
  EXPECT_EQ(accepted.exit_code, 0) << accepted.err;
  EXPECT_NE(accepted.out.find("note: the training continues with data that differ from those of the checkpoint: "),
            std::string::npos)
      << accepted.out;
  const Outcome again = ch01({"--resume", "run", "--epochs", "3"});  // the checkpoint is of the new data now
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(again.out.find("note:"), std::string::npos) << again.out;

  const Outcome without = ch01({"--data", "data", "--accept-new-data"});
  EXPECT_EQ(without.exit_code, 2);
  EXPECT_NE(without.err.find("--accept-new-data: a new run accepts any data"), std::string::npos) << without.err;
}

TEST_F(ResumedData, IsNotedWhenTheCheckpointDoesNotSayIt) {
  const std::string manifest = (folder() / "run/checkpoints/epoch-2-step-0/manifest.safetensors").string();
  TensorFile file = load_tensors(manifest);
  ASSERT_EQ(file.metadata.erase("data"), 1U);
  save_tensors(manifest, file);
  const Outcome resumed = ch01(kResume);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_NE(resumed.out.find("note: the checkpoint does not say which data it was trained on"), std::string::npos)
      << resumed.out;
}

TEST_F(ResumedData, IsCheckedInEveryChapterAndWithinAnEpoch) {
  const std::string records = read_bytes(images());
  for (const std::string& program : {kCh02, kCh03, kCh04, kCh05, kCh06, kCh07, kCh08}) {
    fs::remove_all(folder() / "run");
    ASSERT_EQ(train(program, "run", {"--model", "mlp", "--depth", "3", "--ranks", "2"}, "1").exit_code, 0) << program;
    change_pixel(images());
    expect_other_data(run(program, kResume), "but training images");
    write_bytes(images(), records);
  }
  fs::remove_all(folder() / "run");
  const Flags flags{"--data", "data", "--model", "mlp", "--batch-size", "1", "--epochs", "1000", "--out", "run"};
  Outcome stopped = interrupt(kCh01, flags);
  ASSERT_EQ(stopped.exit_code, 130) << stopped.err;
  write_bytes(images(), records.substr(0, records.size() - kRecord));
  expect_other_data(ch01({"--resume", "run"}), "training images and now has");
  // With few images an epoch may have fewer steps than are done, also where the new data is accepted.
  write_bytes(images(), records);
  int steps = 0;  // of the epoch in progress
  for (int tries = 0; steps < 2 && tries < 100; ++tries) {
    const Outcome again = interrupt(kCh01, {"--resume", "run"}, "Continues");
    std::smatch at;
    ASSERT_TRUE(std::regex_search(again.out, at, std::regex("Interrupted in epoch [0-9]+, step ([0-9]+)")));
    steps = std::stoi(at[1]);
  }
  ASSERT_GE(steps, 2);
  write_bytes(images(), records.substr(0, kRecord));
  const std::string config = bytes("run/config.json");
  const Outcome few = ch01({"--resume", "run", "--accept-new-data"});
  EXPECT_EQ(few.exit_code, 3) << few.out;
  EXPECT_NE(few.err.find("but with these data an epoch has"), std::string::npos) << few.err;
  EXPECT_EQ(bytes("run/config.json"), config);
}

using ResumedDataOfProcesses = ProcessTest;

TEST_F(ResumedDataOfProcesses, IsRefusedOnAllRanks) {
  make_data(96, 20);
  ASSERT_EQ(train(kCh06, "run", {"--ranks", "2"}, "1").exit_code, 0);
  change_pixel(folder() / "data/data_batch_1.bin");
  const Outcome refused = mpirun(2, kCh06, kResume);
  EXPECT_EQ(code(0), 3);
  EXPECT_EQ(code(1), 3);
  EXPECT_NE(refused.err.find("--resume run: the data differ"), std::string::npos) << refused.err;
}

TEST_F(ResumedDataOfProcesses, MustBeTheSameOnAllRanks) {
  make_data(96, 20);
  fs::rename(folder() / "data", folder() / "data0");
  fs::copy(folder() / "data0", folder() / "data1");
  write("ranks.sh", fmt::format("exec {} --data data$OMPI_COMM_WORLD_RANK \"$@\"\n", kCh06));
  const Flags flags{"--epochs", "1", "--batch-size", "32"};
  EXPECT_EQ(mpirun(2, "/bin/sh", joined({"ranks.sh"}, flags)).exit_code, 0);
  change_pixel(folder() / "data1/data_batch_1.bin");
  const Outcome refused = mpirun(2, "/bin/sh", joined({"ranks.sh"}, flags));
  EXPECT_EQ(code(1), 3);
  EXPECT_NE(refused.err.find("rank 1 has other images or labels than rank 0"), std::string::npos) << refused.err;

  fs::copy(folder() / "data0", folder() / "data1", fs::copy_options::overwrite_existing);
  const std::string names = bytes("data1/batches.meta.txt");
  write_bytes(folder() / "data1/batches.meta.txt", "disc" + names.substr(names.find('\n')));
  const Outcome renamed = mpirun(2, "/bin/sh", joined({"ranks.sh"}, flags));
  EXPECT_EQ(code(1), 3);
  EXPECT_NE(renamed.err.find("rank 1 has other classes than rank 0"), std::string::npos) << renamed.err;
}

TEST_F(ResumedDataOfProcesses, ThatIsMissingIsExplainedOnce) {
  const Outcome refused = mpirun(3, kCh06, {"--data", "nowhere", "--epochs", "1"});
  for (const int rank : {0, 1, 2}) {
    EXPECT_EQ(code(rank), 3);
  }
  const std::string reason = "nowhere is missing";
  const auto first = refused.err.find(reason);
  EXPECT_NE(first, std::string::npos) << refused.err;
  EXPECT_EQ(refused.err.find(reason, first + 1), std::string::npos) << refused.err;
}

}  // namespace
}  // namespace stagecoach::test
