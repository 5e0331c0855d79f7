/// @file
/// Bad input: a clear line that says what, where and what to do, the right exit code, and nothing lost.

#include <algorithm>
#include <csignal>
#include <thread>
#include <tuple>

#include "tests/chapters/program.h"

namespace stagecoach::test {
namespace {

namespace fs = std::filesystem;
using Flags = std::vector<std::string>;

class Ch01Errors : public ProgramTest {
 protected:
  /// Expects this exit code, one line on standard error with all of `texts` in it, and no epoch.
  void expect_error(const Flags& flags, int exit_code, const Flags& texts) {
    const Outcome outcome = ch01(flags);
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.out << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    for (const std::string& text : texts) {
      EXPECT_NE(outcome.err.find(text), std::string::npos) << "'" << text << "' is not in: " << outcome.err;
    }
  }
};

TEST_F(Ch01Errors, Flags) {
  expect_error({"--nonsense"}, 2, {"--nonsense", "--help"});
  expect_error({"stray"}, 2, {"stray", "--help"});
  expect_error({"--batch-size", "0"}, 2, {"--batch-size"});
  expect_error({"--batch-size", "-3"}, 2, {"--batch-size"});
  expect_error({"--batch-size", "many"}, 2, {"--batch-size", "many"});
  expect_error({"--batch-size"}, 2, {"--batch-size"});
  expect_error({"--epochs", "0"}, 2, {"--epochs"});
  expect_error({"--microbatches", "0"}, 2, {"--microbatches"});
  expect_error({"--threads", "0"}, 2, {"--threads"});
  expect_error({"--lr", "-1"}, 2, {"--lr"});
  expect_error({"--lr", "nan"}, 2, {"--lr"});
  expect_error({"--lr", "inf"}, 2, {"--lr"});
  expect_error({"--momentum", "1.5"}, 2, {"--momentum"});
  expect_error({"--model", "transformer"}, 2, {"--model", "convnet", "resnet18"});
  expect_error({"--model", "toy"}, 2, {"toy", "convnet"});
  expect_error({"--head", "tail"}, 2, {"--head", "softmax"});
  expect_error({"--optimizer", "lion"}, 2, {"--optimizer", "adam"});
  expect_error({"--device", "tpu"}, 2, {"tpu", "cpu"});
  expect_error({"--device", "cuda:127"}, 2, {"cuda"});
  expect_error({"--image-size", "48"}, 2, {"32"});
  expect_error({"--depth", "4"}, 2, {"convnet", "no --depth", "got 4"});
  expect_error({"--model", "mlp", "--heads", "2"}, 2, {"mlp", "no --heads"});
  expect_error({"--model", "vit", "--heads", "5"}, 2, {"--heads", "divides the width 64", "got 5"});
  expect_error({"--model", "vit", "--depth", "257"}, 2, {"--depth", "from 0 to 256"});
  expect_error({"--model", "vit", "--image-size", "30"}, 2, {"--image-size", "multiple of 4"});
  expect_error({"--resume", ""}, 2, {"--resume"});
  expect_error({"--out", ""}, 2, {"--out"});
  expect_error({"--seed", "-1"}, 2, {"--seed", "-1"});
  expect_error({"--seed", "18446744073709551616"}, 2, {"--seed"});
  expect_error({"--smoke", "--data", "data"}, 2, {"--smoke", "--data"});
}

TEST_F(Ch01Errors, FlagsOfOtherChaptersSayWhereTheyBelong) {
  for (const char* flag :
       {"--ranks", "--chunks", "--schedule", "--split", "--balance", "--link", "--transport", "--timeout"}) {
    expect_error({flag, "2"}, 2, {flag, "ch01_single_device", "chapter"});
  }
  expect_error({"--recompute"}, 2, {"--recompute", "chapter 3"});
  expect_error({"--ranks=4"}, 2, {"--ranks", "chapter 2"});
}

TEST_F(Ch01Errors, Data) {
  expect_error({"--data", "nowhere"}, 3, {"nowhere", "download_cifar10.sh", "generated"});
  fs::create_directory(folder() / "empty");
  expect_error({"--data", "empty"}, 3, {"empty"});

  make_data(100, 50);
  const fs::path batch = folder() / "data/data_batch_1.bin";
  const std::string good = read_bytes(batch);
  write_bytes(batch, good.substr(0, good.size() - 1));
  expect_error({"--data", "data"}, 3, {"data_batch_1.bin", "3073"});
  std::string wrong_label = good;
  wrong_label[3073 * 7] = 10;
  write_bytes(batch, wrong_label);
  expect_error({"--data", "data"}, 3, {"data_batch_1.bin", "from 0 to 9", "got 10", "7"});
  write_bytes(batch, "");
  expect_error({"--data", "data"}, 3, {"data_batch_1.bin", "empty"});
  fs::remove(batch);
  expect_error({"--data", "data"}, 3, {"data"});

  fs::create_directories(folder() / "images/train/cat");
  fs::create_directories(folder() / "images/test/cat");
  write_bytes(folder() / "images/train/cat/1.png", "\x89PNG\r\n\x1a\n but no image");
  write_bytes(folder() / "images/test/cat/1.png", "\x89PNG\r\n\x1a\n but no image");
  expect_error({"--data", "images"}, 3, {"train/cat/1.png"});
}

TEST_F(Ch01Errors, NamesOfFilesGiveATerminalNoOrders) {
  const std::string name = "\033]0;title\007\n\xff\u202e";
  fs::create_directories(folder() / "images/train" / name);
  fs::create_directories(folder() / "images/test" / name);
  expect_error({"--data", "images"}, 3, {"train/\\x1b]0;title\\x07\\n\\xff\\u202e has no images"});
  expect_error({"--model", name}, 2, {"\\x1b]0;title\\x07\\n\\xff\\u202e"});
  make_data(100, 50);
  fs::rename(folder() / "data", folder() / "\033[7mdata");
  const Outcome outcome = ch01({"--data", "\033[7mdata", "--epochs", "1", "--out", "\033c"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out.find('\033'), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("data          \\x1b[7mdata\n"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("Results: \\x1bc\n"), std::string::npos) << outcome.out;
}

TEST_F(Ch01Errors, LargeImagesAreRefusedBeforeTheyAreDecoded) {
  // A PNG whose header tells of 8001 x 8000 pixels, with the data of one.
  const std::string header(
      "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x1f\x41\0\0\x1f\x40\x08\0\0\0\0"
      "\xcc\x58\x99\x16",
      33);
  const std::string data(
      "\0\0\0\x0a"
      "IDAT"
      "\x78\x9c\x63\x60\x00\x00\x00\x02\x00\x01"
      "\x48\xaf\xa4\x71",
      22);
  const std::string end("\0\0\0\0IEND\xae\x42\x60\x82", 12);
  for (const char* split : {"train", "test"}) {
    fs::create_directories(folder() / "images" / split / "cat");
    write_bytes(folder() / "images" / split / "cat/large.png", header + data + end);
  }
  expect_error({"--data", "images"}, 3,
               {"train/cat/large.png is too large", "at most 64 megapixels", "8001 x 8000", "--max-megapixels"});
  expect_error({"--data", "images", "--max-megapixels", "65"}, 3, {"train/cat/large.png cannot be decoded"});
  expect_error({"--max-megapixels", "0"}, 2, {"--max-megapixels"});
  expect_error({"--max-megapixels", "701"}, 2, {"--max-megapixels"});
}

TEST_F(Ch01Errors, ALossThatIsNoNumberStopsAndKeepsWhatWasSaved) {
  make_data(300, 50);
  ASSERT_EQ(ch01({"--data", "data", "--epochs", "1", "--out", "run"}).exit_code, 0);
  const std::string saved = read_bytes(folder() / "run/weights.safetensors");
  expect_error({"--data", "data", "--lr", "1e20", "--epochs", "2", "--out", "run"}, 2,
               {"a loss that is NaN or infinite", "epoch 1, step", "--lr"});
  EXPECT_EQ(read_bytes(folder() / "run/earlier-1/weights.safetensors"), saved);
}

TEST_F(Ch01Errors, WeightsThatAreNoNumbersAreNotSaved) {
  make_data(100, 50);
  ASSERT_EQ(ch01({"--data", "data", "--epochs", "1", "--out", "run"}).exit_code, 0);
  // One step: its loss is good, and its weights are not.
  expect_error({"--data", "data", "--batch-size", "100", "--lr", "1e42", "--epochs", "1", "--out", "run"}, 2,
               {"a weight that is NaN or infinite"});
  EXPECT_FALSE(fs::exists(folder() / "run/weights.safetensors"));
}

TEST_F(Ch01Errors, WhatFailsOrExplainsLeavesAnEarlierRunAlone) {
  make_data(100, 50);
  ASSERT_EQ(ch01({"--data", "data", "--epochs", "1", "--out", "run"}).exit_code, 0);
  const std::string config = read_bytes(folder() / "run/config.json");
  expect_error({"--model", "toy", "--out", "run"}, 2, {"toy"});
  expect_error({"--image-size", "16", "--out", "run"}, 2, {"32"});
  expect_error({"--momentum", "1", "--out", "run"}, 2, {"momentum"});
  expect_error({"--optimizer", "adam", "--momentum", "0.5", "--out", "run"}, 2, {"momentum"});
  expect_error({"--resume", "nowhere", "--out", "run"}, 3, {"nowhere"});
  expect_error({"--resume", "run", "--epochs", "1"}, 2, {"is done after 1 epoch"});
  EXPECT_EQ(ch01({"--explain", "--smoke", "--out", "run"}).exit_code, 0);
  EXPECT_FALSE(fs::exists(folder() / "run/earlier-1"));
  EXPECT_TRUE(fs::exists(folder() / "run/weights.safetensors"));
  EXPECT_EQ(read_bytes(folder() / "run/config.json"), config);
}

TEST_F(Ch01Errors, TwoRunsDoNotShareAFolder) {
  make_data(1000, 50);
  Running first(kCh01, {"--data", "data", "--epochs", "1000000", "--out", "run"}, folder());
  while (first.out().find("Epoch: 1,") == std::string::npos) {
    std::this_thread::yield();
  }
  expect_error({"--data", "data", "--epochs", "1", "--out", "run"}, 2, {"--out run", "another run"});
  first.signal(SIGTERM);
  EXPECT_EQ(first.wait().exit_code, 130);
}

TEST_F(Ch01Errors, AChangedConfigIsNotTrusted) {
  make_data(100, 50);
  ASSERT_EQ(ch01({"--data", "data", "--epochs", "1", "--out", "run"}).exit_code, 0);
  const std::string config = read_bytes(folder() / "run/config.json");
  for (const auto& [was, is, named] : {std::tuple("\"seed\": 0", "\"seed\": 8", "manifest.safetensors"),
                                       {"\"microbatches\": 1", "\"microbatches\": 2", "manifest.safetensors"},
                                       {"\"microbatches\": 1", "\"microbatches\": 0", "'microbatches'"}}) {
    std::string changed = config;
    ASSERT_NE(changed.find(was), std::string::npos);
    write_bytes(folder() / "run/config.json", changed.replace(changed.find(was), std::string(was).size(), is));
    expect_error({"--resume", "run", "--epochs", "2"}, 3, {named, "config.json"});
  }
}

TEST_F(Ch01Errors, StandardOutputCannotBeWritten) { EXPECT_EQ(shell(kCh01 + " --smoke > /dev/full").exit_code, 3); }

TEST_F(Ch01Errors, ATrainingThatIsSavedGoesOnWhenNobodyReadsItsOutput) {
  make_data(32, 16);
  const std::string train = kCh01 + " --data data --epochs 60";  // their lines are more than a buffer holds
  shell("{ " + train + " --out run; echo $? > code; } | head -1");
  EXPECT_EQ(read_bytes(folder() / "code"), "3\n") << "the failed write is reported at the end";
  const std::string metrics = read_bytes(folder() / "run/metrics.jsonl");
  EXPECT_EQ(std::count(metrics.begin(), metrics.end(), '\n'), 60);
  shell(train + " --out whole");
  EXPECT_TRUE(read_bytes(folder() / "run/weights.safetensors") == read_bytes(folder() / "whole/weights.safetensors"));

  shell("{ " + train + "; echo $? > code; } | head -1");
  EXPECT_EQ(read_bytes(folder() / "code"), "141\n") << "without --out nothing is lost with it";
}

TEST_F(Ch01Errors, Resume) {
  expect_error({"--resume", "nowhere"}, 3, {"nowhere"});
  make_data(100, 50);
  expect_error({"--resume", "data"}, 3, {"data", "config.json"});
  ASSERT_EQ(ch01({"--data", "data", "--epochs", "1", "--out", "run"}).exit_code, 0);
  const fs::path checkpoint = folder() / "run/checkpoints/epoch-2-step-0/shard_0.safetensors";
  const std::string good = read_bytes(checkpoint);
  const std::string weights = read_bytes(folder() / "run/weights.safetensors");
  for (const std::size_t at : {std::size_t{0}, std::size_t{9}, good.size() / 2, good.size() - 1}) {
    std::string flipped = good;
    flipped[at] = static_cast<char>(flipped[at] ^ 4);
    write_bytes(checkpoint, flipped);
    expect_error({"--resume", "run", "--epochs", "2"}, 3, {"shard_0.safetensors"});
    write_bytes(checkpoint, good.substr(0, at));
    expect_error({"--resume", "run", "--epochs", "2"}, 3, {"shard_0.safetensors"});
  }
  EXPECT_EQ(read_bytes(folder() / "run/weights.safetensors"), weights) << "a failed --resume writes nothing";
  write_bytes(checkpoint, good);
  EXPECT_EQ(ch01({"--resume", "run", "--epochs", "2"}).exit_code, 0) << "and spoils nothing";

  write_bytes(folder() / "run/config.json", "{\"program\": 7");
  expect_error({"--resume", "run", "--epochs", "3"}, 3, {"config.json"});
}

TEST_F(Ch01Errors, OutCannotBeWritten) {
  write_bytes(folder() / "file", "");
  expect_error({"--smoke", "--out", "file"}, 3, {"file"});
  expect_error({"--smoke", "--out", "file/below"}, 3, {"file/below"});
}

TEST_F(Ch01Errors, AFullDiskKeepsTheOlderSave) {
  make_data(100, 50);
  const std::string run = kCh01 + " --data data --out run ";
  ASSERT_EQ(shell(run + "--epochs 1").exit_code, 0);
  const std::string weights = read_bytes(folder() / "run/weights.safetensors");
  const std::string checkpoint = read_bytes(folder() / "run/checkpoints/epoch-2-step-0/shard_0.safetensors");
  // A file size limit of 100 KiB acts as the full disk.
  const Outcome full = shell("ulimit -f 200; exec " + kCh01 + " --resume run --epochs 2");
  EXPECT_EQ(full.exit_code, 3) << full.out << full.err;
  EXPECT_NE(full.err.find("shard_0.safetensors"), std::string::npos) << full.err;
  EXPECT_EQ(read_bytes(folder() / "run/weights.safetensors"), weights);
  EXPECT_EQ(read_bytes(folder() / "run/checkpoints/epoch-2-step-0/shard_0.safetensors"), checkpoint);
  for (const auto& entry : fs::directory_iterator(folder() / "run")) {
    EXPECT_NE(entry.path().filename().string().front(), '.') << "a temporary file stayed: " << entry.path();
  }
  EXPECT_EQ(shell(run + "--resume run --epochs 2").exit_code, 0);
}

}  // namespace
}  // namespace stagecoach::test
