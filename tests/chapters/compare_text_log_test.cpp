/// @file
/// `compare` on what programs printed: ours, and those of other frameworks.

#include <fmt/format.h>

#include <regex>

#include "tests/chapters/compare.h"

namespace stagecoach::test {
namespace {

class CompareTextLog : public CompareTest {
 protected:
  /// Expects that this log has two epochs, the second of 2 s with the loss 1.5.
  void expect_two_epochs(const std::string& text) {
    write("run.log", text);
    const Outcome outcome = compare({"run.log"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(cell(outcome, "run.log", "epochs"), "2") << text;
    EXPECT_EQ(cell(outcome, "run.log", "epoch time"), "2.000 s") << text;
    EXPECT_EQ(cell(outcome, "run.log", "loss"), "1.500") << text;
  }
};

const std::string kFirst = "Epoch: 1, Loss: 2.30, acc: 0.10, time cost: 9.00s";
const std::string kSecond = "Epoch: 2, Loss: 1.50, acc: 0.40, time cost: 2.00s";

TEST_F(CompareTextLog, OfOurForm) {
  write("a.log", kFirst + ", test acc: 0.20, 100 img/s, idle 0.0% (ideal 60.0%)\n" + kSecond +
                     ", test acc: 0.38, 27310 img/s, idle 21.4% (ideal 20.0%)\n");
  const Outcome outcome = compare({"a.log"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(cell(outcome, "a.log", "idle"), "21.4%");
  EXPECT_EQ(cell(outcome, "a.log", "acc"), "0.400");
  EXPECT_EQ(cell(outcome, "a.log", "test acc"), "0.380");
  EXPECT_EQ(cell(outcome, "a.log", "clock"), "wall");
  EXPECT_EQ(cell(outcome, "a.log", "ranks"), "-");
  EXPECT_EQ(cell(outcome, "a.log", "ideal speed-up"), "-") << "of an unknown number of ranks";
  EXPECT_EQ(cell(outcome, "a.log", "peak MiB"), "-");
}

TEST_F(CompareTextLog, OfOtherFrameworks) {
  expect_two_epochs("Files already downloaded\n\n" + kFirst + "\nstep 100, loss 1.9\nEpoch: 2 begins\n" + kSecond +
                    "\n");
  expect_two_epochs(kFirst + "\n" + kSecond);
  expect_two_epochs("Epoch: 1, Loss: 2.3, time cost: 9s\nEpoch: 2, Loss: 1.5, time cost: 2s, 9 img/s\n");
  expect_two_epochs("\xEF\xBB\xBF" + kFirst + "\r\n" + kSecond + "\r\n");
  expect_two_epochs("\r\033[KEpoch 1 [==  ] 50%\r\033[K" + kFirst + "\n\r\033[KEpoch 2 [=\r\033[1;32m" + kSecond +
                    "\033[0m\n");
  expect_two_epochs("Epoch: 0, Loss: nan, acc: nan, time cost: 1e1s, lr 0.1, test acc: 0.1\n" +
                    std::string("Epoch: 1, Loss: 1.5e+00, acc: 4e-1, time cost: 2s (slow)\n"));
  EXPECT_EQ(compare({"run.log"}).out.find("note: "), std::string::npos);
  expect_two_epochs(kFirst + "\n" + "Epoch: 2, Loss: 9, acc: 0, time cost: 99s\n" + kSecond + "\n");
  expect_texts(compare({"run.log"}).out, {"note: run.log: it has epochs more than once", "the last ones count"});
}

TEST_F(CompareTextLog, TwoEpochsOnOneLineAreNotMixed) {
  for (const char* between : {"", " ", "[rank 1] "}) {
    write("run.log", kFirst + between + kSecond + ", test acc: 0.38\n");
    expect_error({"run.log"}, 3, {"run.log, line 1: expected one epoch, got several in 'Epoch: 1", "its own line"});
  }
}

TEST_F(CompareTextLog, EpochsThatAreNotInOrderAreRefused) {
  write("run.log", kSecond + "\n" + kFirst + "\n");
  expect_error({"run.log"}, 3, {"run.log, line 2: expected epochs in rising order, got epoch 1 after epoch 2"});
}

TEST_F(CompareTextLog, LinesOfAnotherFormAreNoEpochs) {
  write("run.log", kFirst + "\n[rank 0] " + kSecond + "\n  " + kSecond + "\nEpoch: 2, Loss: 1.5\nEpoch 2, " + kSecond);
  const Outcome outcome = compare({"run.log"});
  EXPECT_EQ(cell(outcome, "run.log", "epochs"), "1");
  expect_texts(outcome.out,
               {"note: run.log: epoch lines with another prefix were left out, such as line 2, '[rank 0] "});
}

TEST_F(CompareTextLog, BehindWhatLaunchersAndLoggersPutBeforeIt) {
  const Texts prefixes{"[1,0]<stdout>:",                    // mpirun --tag-output, Open MPI 4
                       "[prterun-node1-77@1,0]<stdout>: ",  // Open MPI 5
                       "[0] ",                              // mpiexec -prepend-rank
                       "0: ",                               // srun --label
                       " 0: ",                              // of more than ten tasks
                       "[rank0]: ",                         // torchrun
                       "[default0]:",                       // torchrun --tee 3
                       "[default0]:[rank0]: ",
                       "trainer-0  | ",  // docker compose
                       "{\"level\": \"info\", \"message\": \""};
  for (const std::string& prefix : prefixes) {
    expect_two_epochs(prefix + "starts\n" + prefix + kFirst + "\n" + prefix + kSecond + "\r\n");
    expect_two_epochs(prefix + "\033[1m" + kFirst + "\033[0m\n\033[2m" + prefix + "\033[0m" + kSecond + "\n");
  }
  // The time differs from line to line, and night falls.
  expect_two_epochs("2026-11-27 23:59:58,123 - INFO - " + kFirst + "\n2026-11-28 00:00:00,045 - INFO - " + kSecond);
  expect_two_epochs("[1795773598] " + kFirst + "\n[1795773600] " + kSecond);
  expect_two_epochs("INFO:root:" + kFirst + "\nINFO:root:" + kSecond);
  expect_two_epochs("Mon Aug 31 23:59:58 2026[1,0]<stdout>:" + kFirst +
                    "\nTue Sep  1 00:00:00 2026[1,0]<stdout>:" + kSecond);
  expect_two_epochs("I1127 09:59:59.123456 123 train.py:7] " + kFirst + "\nI1127 10:00:00.000001 124 train.py:7] " +
                    kSecond);
}

TEST_F(CompareTextLog, OfSeveralRanksIsThatOfRankZero) {
  const std::string other = "Epoch: 2, Loss: 9.00, acc: 0.10, time cost: 7.00s";
  const auto log = [&](const auto& prefix) {
    return prefix(1) + kFirst + "\n" + prefix(0) + kFirst + "\n" + prefix(0) + kSecond + "\n" + prefix(1) + other +
           "\n";
  };
  expect_two_epochs(log([](int rank) { return fmt::format("[1,{}]<stdout>:", rank); }));
  expect_two_epochs(log([](int rank) { return fmt::format("{}: ", rank); }));
  expect_two_epochs(log([](int rank) { return fmt::format("{}: [==  ] 50%\r\033[K", rank); }));
  expect_two_epochs(log([](int rank) { return fmt::format("[1,{}]<stdout>:\r[=== ]\r", rank); }));
  expect_two_epochs(log([](int rank) { return fmt::format("10:00:0{} {}: ", rank, rank); }));
  expect_two_epochs(log([](int rank) { return fmt::format("10:00:0{} [Rank {}] ", rank, rank); }));
  const Outcome outcome = compare({"run.log"});
  expect_texts(outcome.out,
               {"note: run.log: epoch lines with another prefix were left out, such as line 1, '10:00:01"});
  expect_two_epochs("3: " + kFirst + "\n3: " + kSecond);  // the last stage of a pipeline knows the loss
}

TEST_F(CompareTextLog, WhoseSeriesAreNotClearIsRefused) {
  write("ranks.log", "1: " + kFirst + "\n2: " + kFirst + "\n");
  expect_error({"ranks.log"}, 3, {"epoch lines of the ranks 1, 2: expected those of rank 0 or of one rank"});
  write("loggers.log", "train: " + kFirst + "\nbest: " + kFirst + "\n");
  expect_error({"loggers.log"}, 3, {"different prefixes: expected one, got 'best: ' and 'train: '; keep"});
  write("damaged.log", "0: " + kFirst + "\n0: Epoch: 2, Loss: 1.50, acc: , time cost: 3\n");
  expect_error({"damaged.log"}, 3, {"damaged.log, line 2: the epoch line cannot be read"});
}

TEST_F(CompareTextLog, AccuraciesInPercentAreShares) {
  const auto epochs = [](const char* first, const char* second, const char* test) {
    return fmt::format(
        "Epoch: 1, Loss: 2.3, acc: {}, time cost: 9s, test acc: {}\nEpoch: 2, Loss: 1.5, acc: {}, time cost: 2s, test "
        "acc: {}, 9 img/s\n",
        first, first, second, test);
  };
  const auto expect_shares = [&](const std::string& text, bool has_note) {
    write("run.log", text);
    const Outcome outcome = compare({"run.log"});
    EXPECT_EQ(cell(outcome, "run.log", "acc"), "0.260") << text << outcome.err;
    EXPECT_EQ(cell(outcome, "run.log", "test acc"), "0.470") << text;
    const std::string note = "note: run.log: its accuracies are above 1, so they were read as percentages";
    EXPECT_EQ(outcome.out.find(note) != std::string::npos, has_note) << outcome.out;
  };
  expect_shares(epochs("10.0", "26", "47.0"), true);
  expect_shares(epochs("0", "26", "47.0"), true);
  expect_shares(epochs("nan", "26", "47.0"), true);
  expect_shares(epochs("0.9%", "26%", "47.0 %"), false);
  expect_shares(epochs("1.0%", "26%", "47.0"), true);
  expect_shares(epochs("1.0", "0.26", "0.47"), false);
  write("run.log", epochs("0.9", "26", "47"));
  expect_error({"run.log"}, 3, {"run.log: the accuracies have different units", "got 0.9 and 47", "as in 26%"});
  write("run.log", epochs("1.0", "26", "47"));
  expect_error({"run.log"}, 3, {"different units", "got 1 and 47"});
  write("run.log", epochs("10", "26", "0.47"));
  expect_error({"run.log"}, 3, {"different units", "got 0.47 and 26"});
  write("run.log", epochs("10", "260", "47"));
  expect_error({"run.log"}, 3, {"out of range", "a percentage up to 100, got 260"});
  write("run.log", epochs("-0.1", "0.26", "0.47"));
  expect_error({"run.log"}, 3, {"out of range", "got -0.1"});
  write_run("run", {2, 2}, {}, {{"acc", 26}, {"test_acc", 47}});
  const Outcome metrics = compare({"run"});
  EXPECT_EQ(cell(metrics, "run", "acc"), "0.260");
  expect_texts(metrics.out, {"note: run: its accuracies are above 1"});
}

TEST_F(CompareTextLog, InUtf16IsCalledThat) {
  std::string wide = "\xFF\xFE";
  for (const char letter : kFirst) {
    wide += {letter, '\0'};
  }
  write("run.log", wide);
  expect_error({"run.log"}, 3, {"run.log: expected UTF-8, got UTF-16"});
}

TEST_F(CompareTextLog, LossesThatAreNoNumbersAreShown) {
  write("nan.log", kFirst + "\nEpoch: 2, Loss: nan, acc: 0.1, time cost: 1.0s\n");
  write("inf.log", kFirst + "\nEpoch: 2, Loss: -inf, acc: 0.1, time cost: 1.0s\n");
  const Outcome outcome = compare({"nan.log", "inf.log"});
  EXPECT_EQ(cell(outcome, "nan.log", "loss"), "nan");
  EXPECT_EQ(cell(outcome, "inf.log", "loss"), "-inf");
}

TEST_F(CompareTextLog, ADamagedEpochIsADataError) {
  write("run.log", kFirst + "\n" + "Epoch: 2, Loss: 1.50, acc: 0.40, time cost: \n");
  expect_error({"run.log"}, 3, {"run.log, line 2", "time cost: 1.83s"});
  write("run.log", kFirst + "\n\nEpoch: 2, Loss: , acc: 0.40, time cost: 1.2s\n");
  expect_error({"run.log"}, 3, {"run.log, line 3"});
  write("run.log", "Epoch: 2, Loss: 1, acc: 0.40, time cost: -1.2s\n");
  expect_error({"run.log"}, 3, {"run.log, line 1"});
}

TEST_F(CompareTextLog, VirtualTimesAreNotWallTimes) {
  write("wall.log", kFirst + "\n");
  write("virtual.log", kFirst + ", test acc: 0.20, 100 img/s, idle 0.0% (ideal 0.0%), virtual\n");
  expect_refusal("wall.log", "virtual.log", {"clock: expected wall, got virtual"});
  EXPECT_EQ(cell(compare({"virtual.log"}), "virtual.log", "test acc"), "0.200");
  write("mixed.log", kFirst + ", virtual\n" + kSecond + "\n");
  write("two.log", kFirst + "\n" + kSecond + "\n");
  expect_refusal("two.log", "mixed.log", {"clock: expected wall, got mixed"});
}

TEST_F(CompareTextLog, SettingsInTheLogAreCompared) {
  const std::string table = "ch03_gpipe\n  data          my images\n  batch-size    64\n  ranks         4\n";
  write("a.log", table + "  schedule      1f1b\n" + kFirst + ", idle 1.0% (ideal 25.0%)\n");
  write("b.log", "ch03_gpipe\r\n  data          my images\r\n  batch-size    128\r\n" + kFirst + "\r\n");
  expect_refusal("a.log", "b.log", {"batch-size: expected 64, got 128"});
  std::string labelled = read_bytes(folder() / "b.log");
  labelled = "0: " + std::regex_replace(labelled, std::regex("\n(?=.)"), "\n0: ");
  write("labelled.log", labelled);
  expect_refusal("a.log", "labelled.log", {"batch-size: expected 64, got 128"});
  const Outcome outcome = compare({"a.log"});
  EXPECT_EQ(cell(outcome, "a.log", "program"), "ch03_gpipe");
  EXPECT_EQ(cell(outcome, "a.log", "schedule"), "1f1b");
  EXPECT_EQ(cell(outcome, "a.log", "ideal speed-up"), "3.00");
  write_run("c", {9}, {{"data", "my images"}});
  EXPECT_EQ(compare({"a.log", "c"}).exit_code, 0) << "a log and a folder say the same";
}

TEST_F(CompareTextLog, DataWithoutANameAreComparedByTheirSize) {
  write_run("a", {2, 2});  // 1,000 images
  write("near.log", kFirst + ", 111 img/s\n" + kSecond + ", 505 img/s\n");
  const Outcome near = compare({"a", "near.log"});
  EXPECT_EQ(near.exit_code, 0) << near.err;
  EXPECT_EQ(cell(near, "near.log", "speed-up"), "1.00");
  expect_texts(near.out, {"note: near.log compared with a: the data is not known for both", "1000 and", "within 2%",
                          "note: near.log compared with a: the batch size is not known"});
  write("far.log", kFirst + ", 130 img/s\n" + kSecond + ", 580 img/s\n");
  expect_refusal("a", "far.log", {"images per epoch: expected 1000, got 11", "the same data"});
  // 0.02 s may be 0.015 s: this says nothing about the number of images.
  write_run("fast", {0.02});
  write("fast.log", "Epoch: 1, Loss: 2, acc: 0, time cost: 0.02s, test acc: 0, 66666 img/s\n");
  const Outcome fast = compare({"fast", "fast.log"});
  EXPECT_EQ(fast.exit_code, 0) << fast.err;
  expect_texts(fast.out, {"the data is not known for both runs; check"});
}

TEST_F(CompareTextLog, PartsOfARunAreNotWholeOnes) {
  write("first.log", kFirst + "\n" + kSecond + "\n");
  write("rest.log", "Epoch: 3, Loss: 1, acc: 0, time cost: 1s\nEpoch: 4, Loss: 1, acc: 0, time cost: 1s\n");
  expect_refusal("first.log", "rest.log", {"finished epochs: expected 2, got 2 (3 to 4)"});
}

TEST_F(CompareTextLog, EpochsThatCountFromZeroCoincideWithThoseThatCountFromOne) {
  write("zero.log", "Epoch: 0, Loss: 2, acc: 0, time cost: 1s\nEpoch: 1, Loss: 1, acc: 0, time cost: 1s\n");
  write("one.log", "Epoch: 1, Loss: 2, acc: 0, time cost: 1s\nEpoch: 2, Loss: 1, acc: 0, time cost: 1s\n");
  const Outcome outcome = compare({"zero.log", "one.log", "--svg", "plot.svg"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(cell(outcome, "zero.log", "epochs"), "2");
  expect_texts(read_bytes(folder() / "plot.svg"), {"zero.log, one.log: losses coincide"});
}

/// docs/published/ holds the logs of a course; ours are set beside them in one table.
TEST_F(CompareTextLog, PublishedLogsBesideOurs) {
  write_run("one", std::vector<double>(10, 1.25), {}, {{"clock", "virtual"}, {"images_per_second", 40000}});
  write_run("pipeline", std::vector<double>(10, 0.5), {}, {{"clock", "virtual"}, {"images_per_second", 100000}});
  Texts arguments;
  for (const char* name : {"single_gpu.log", "naive_4_gpus.log", "pipeline_4_gpus.log"}) {
    arguments.push_back(std::string(STAGECOACH_PUBLISHED_LOGS "/") + name);
  }
  const std::string published = arguments[0];
  arguments.insert(arguments.end(), {"one", "pipeline", "--baseline", published, "--baseline", "one"});
  const Outcome outcome = compare(arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(cell(outcome, "single_gpu.log", "epoch time"), "14.230 s");
  EXPECT_EQ(cell(outcome, "naive_4_gpus.log", "speed-up"), "0.95");
  EXPECT_EQ(cell(outcome, "pipeline_4_gpus.log", "speed-up"), "0.54");
  EXPECT_EQ(cell(outcome, "pipeline", "speed-up"), "2.50");
}

TEST_F(CompareTextLog, TimesThatRoundToNothingHaveNoSpeedUp) {
  write("a.log", "Epoch: 1, Loss: 2, acc: 0, time cost: 0.00s\n");
  const Outcome outcome = compare({"a.log", "--svg", "plot.svg"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(cell(outcome, "a.log", "speed-up"), "-");
  EXPECT_EQ(read_bytes(folder() / "plot.svg").find("nan"), std::string::npos);
}

}  // namespace
}  // namespace stagecoach::test
