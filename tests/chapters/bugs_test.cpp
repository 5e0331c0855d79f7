/// @file
/// The bug museum: each bug of --inject is caught, or shows the symptom that docs/bugs.md describes.

#include "chapters/common/bugs.h"

#include <cmath>
#include <map>

#include "chapters/common/chapter.h"
#include "tests/chapters/pipelines.h"

namespace stagecoach::test {
namespace {

constexpr double kKnowsNothing = 2.302585;  // ln(10): the loss of a network that gives each of ten classes 0.1

class BugMuseum : public PipelineTest {
 protected:
  void SetUp() override { make_data(192, 16); }

  static Flags with(const std::string& bug, const Flags& flags) { return joined({"--inject", bug}, flags); }

  /// Checks that a run with the bug fails with `exit_code` and an error that has all `parts`.
  void expect_caught(const std::string& bug, const std::string& program, const Flags& flags, int exit_code,
                     const std::vector<std::string>& parts) {
    const Outcome outcome = train(program, bug, with(bug, flags));
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
    for (const std::string& part : parts) {
      EXPECT_NE(outcome.err.find(part), std::string::npos) << "'" << part << "' is not in: " << outcome.err;
    }
  }
  /// Checks that the bug raises no error, and that the weights are not those of the same run without it.
  void expect_other_weights(const std::string& bug, const std::string& program, const Flags& flags) {
    const Outcome healthy = train(program, "healthy", flags);
    const Outcome outcome = train(program, bug, with(bug, flags));
    ASSERT_EQ(healthy.exit_code, 0) << healthy.err;
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_NE(outcome.out.find("note: this run has the bug '" + bug + "'"), std::string::npos) << outcome.out;
    EXPECT_FALSE(bytes(bug + "/weights.safetensors") == bytes("healthy/weights.safetensors"));
  }
  double last_loss(const std::string& out) { return metrics(out).back()["loss"].get<double>(); }
};

TEST_F(BugMuseum, EachChapterListsItsOwn) {
  const std::map<int, std::string> programs{{1, kCh01}, {2, kCh02}, {3, kCh03}, {4, kCh04},
                                            {5, kCh05}, {6, kCh06}, {9, kCh09}};
  for (const auto& [chapter, program] : programs) {
    const Outcome outcome = run(program, {"--inject", "list"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(outcome.out, bug_list(chapter));
    EXPECT_FALSE(bug_names(chapter).empty());
  }
  EXPECT_GE(bug_names(kEveryChapter).size(), 12U);
  expect_refused(kCh03, {"--inject", "same-shard"}, {"--inject", "tag-twice"});
  expect_refused(kCh07, {"--inject", "tag-twice"}, {"--inject is not a flag of ch07_one_controller"});
}

TEST_F(BugMuseum, SendOrder) {
  expect_caught("send-order", kCh04,
                {"--versions", "flush", "--schedule", "by-hand", "--split", "6,6", "--timeout",
                 unless_sanitized<std::string>("1", "20")},
                4, {"rank", "send"});
  expect_refused(kCh05,
                 {"--smoke", "--schedule", "1f1b", "--split", "6,6", "--receives", "at-use", "--explain", "--inject",
                  "send-order"},
                 {"cannot run", "deadlock"});
}

TEST_F(BugMuseum, TagTwice) {
  const Flags flags{"--split", "6,6", "--microbatches", "4"};
  expect_other_weights("tag-twice", kCh03, flags);
  EXPECT_EQ(train(kCh05, "interleaved", with("tag-twice", {"--balance", "layers"})).exit_code, 0);
  expect_refused(kCh03, joined({"--smoke", "--explain", "--inject", "tag-twice"}, flags),
                 {"cannot run", "in the order of that rank's sends"});
}

// Without momentum, a gradient that is four times as large is a learning rate that is.
TEST_F(BugMuseum, GradientSum) {
  expect_other_weights("gradient-sum", kCh01, {"--microbatches", "4", "--momentum", "0"});
  ASSERT_EQ(train(kCh01, "faster", {"--microbatches", "4", "--momentum", "0", "--lr", "0.04"}).exit_code, 0);
  EXPECT_NEAR(last_loss("gradient-sum"), last_loss("faster"), 1e-3);
  expect_other_weights("gradient-sum", kCh03, {"--split", "6,6", "--microbatches", "4"});
}

TEST_F(BugMuseum, WipedGradients) {
  expect_other_weights("wiped-gradients", kCh01, {"--microbatches", "4"});
  EXPECT_GT(last_loss("wiped-gradients"), last_loss("healthy"));
  ASSERT_EQ(train(kCh01, "one", {}).exit_code, 0);
  ASSERT_EQ(train(kCh01, "one-wiped", with("wiped-gradients", {})).exit_code, 0);
  EXPECT_TRUE(bytes("one/weights.safetensors") == bytes("one-wiped/weights.safetensors"));  // nothing to wipe
}

TEST_F(BugMuseum, RatePerRank) {
  expect_other_weights("rate-per-rank", kCh06, {"--ranks", "2"});
  EXPECT_NE(bytes("rate-per-rank/config.json").find("\"lr\": 0.02"), std::string::npos);
}

TEST_F(BugMuseum, OtherLabels) {
  expect_other_weights("other-labels", kCh03, {"--split", "6,6", "--optimizer", "adam", "--lr", "0.003"});
  EXPECT_NEAR(last_loss("other-labels"), kKnowsNothing, 0.1);
  EXPECT_LT(last_loss("healthy"), last_loss("other-labels"));
}

TEST_F(BugMuseum, SameShard) { expect_other_weights("same-shard", kCh06, {"--ranks", "2"}); }

TEST_F(BugMuseum, OwnSeed) {
  expect_caught("own-seed", kCh06, {"--ranks", "2"}, 4, {"conv1.weight", "to be equal on all ranks", "differ"});
}

TEST_F(BugMuseum, SkippedStep) {
  expect_caught("skipped-step", kCh06,
                {"--ranks", "2", "--mode", "single", "--timeout", unless_sanitized<std::string>("1", "20")}, 4,
                {"rank"});
}

TEST_F(BugMuseum, UnstashedWeights) {
  const Flags flags{"--split", "6,6"};
  expect_caught("unstashed-weights", kCh04, flags, 4, {"was modified after the forward"});
}

TEST_F(BugMuseum, NormTwice) {
  make_data(unless_sanitized(32, 8), 8);
  const Flags flags{"--model", "resnet18", "--balance", "layers", "--microbatches", "2", "--recompute"};
  const Outcome healthy = train(kCh03, "healthy", flags, "1");
  const Outcome outcome = train(kCh03, "norm-twice", with("norm-twice", flags), "1");
  ASSERT_EQ(healthy.exit_code, 0) << healthy.err;
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(last_loss("healthy"), last_loss("norm-twice"));  // training does not use the running statistics
  EXPECT_FALSE(bytes("norm-twice/weights.safetensors") == bytes("healthy/weights.safetensors"));
}

TEST_F(BugMuseum, BucketOrder) {
  expect_caught("bucket-order", kCh06,
                {"--ranks", "2", "--first-bucket-size", "4KiB", "--bucket-size", "16KiB", "--timeout", "5"}, 4,
                {"all_reduce"});
}

TEST_F(BugMuseum, UnusedParameter) {
  expect_caught("unused-parameter", kCh06, {"--ranks", "2"}, 4, {"auxiliary"});
  EXPECT_EQ(train(kCh06, "found", with("unused-parameter", {"--ranks", "2", "--find-unused"})).exit_code, 0);
}

// Where weights are cut they are gathered into new memory, so that they cannot be old.
TEST_F(BugMuseum, StaleWeights) {
  expect_other_weights("stale-weights", kCh09, {"--ranks", "2", "--shard", "optimizer"});
  ASSERT_EQ(train(kCh09, "cut", with("stale-weights", {"--ranks", "2"})).exit_code, 0);
  EXPECT_TRUE(bytes("cut/weights.safetensors") == bytes("healthy/weights.safetensors"));
}

// With one copy there is nothing to forget.
TEST_F(BugMuseum, LoneCopies) {
  expect_other_weights("lone-copies", kCh09, {"--mesh", "dp=2,shard=2"});
  ASSERT_EQ(train(kCh09, "one-copy", with("lone-copies", {"--mesh", "shard=4"})).exit_code, 0);
  ASSERT_EQ(train(kCh09, "one-copy-healthy", {"--mesh", "shard=4"}).exit_code, 0);
  EXPECT_TRUE(bytes("one-copy/weights.safetensors") == bytes("one-copy-healthy/weights.safetensors"));
}

TEST_F(BugMuseum, StaleShard) {
  const Flags flags{"--split", "6,6"};
  ASSERT_EQ(train(kCh03, "whole", flags, "3").exit_code, 0);
  for (const std::string out : {"healthy", "stale"}) {
    ASSERT_EQ(train(kCh03, out, flags, "2").exit_code, 0);
    const Flags resume{"--resume", out, "--epochs", "3"};
    ASSERT_EQ(run(kCh03, out == "stale" ? with("stale-shard", resume) : resume).exit_code, 0);
  }
  EXPECT_TRUE(bytes("healthy/weights.safetensors") == bytes("whole/weights.safetensors"));
  EXPECT_FALSE(bytes("stale/weights.safetensors") == bytes("whole/weights.safetensors"));
}

}  // namespace
}  // namespace stagecoach::test
