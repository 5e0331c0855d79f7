/// @file
/// --model gpt as its users run it: equal bytes for any split of the work, with dropout; what it learns and writes.

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "core/autograd/grad_mode.h"
#include "core/ops.h"
#include "datasets/loader.h"
#include "datasets/text.h"
#include "nn/models.h"
#include "nn/safetensors.h"
#include "tests/chapters/pipelines.h"
#include "tests/support/tensors.h"

namespace stagecoach::test {
namespace {

const Flags kSmallGpt{"--model",   "gpt", "--depth",  "3",  "--width",  "16", "--heads",      "2", "--context", "16",
                      "--dropout", "0.2", "--sample", "20", "--epochs", "2",  "--batch-size", "16"};

/// Returns these flags with another value of one of them.
Flags small_gpt_with(const std::string& flag, const std::string& value) {
  Flags flags = kSmallGpt;
  *(std::find(flags.begin(), flags.end(), flag) + 1) = value;
  return flags;
}

/// Returns the text that --sample printed.
std::string sample_in(const std::string& out) {
  std::istringstream lines(out.substr(std::min(out.size(), out.find("Sample of"))));
  std::string text;
  std::string line;
  for (std::getline(lines, line); std::getline(lines, line) && line.starts_with("  ");) {
    text += line.substr(2) + "\n";
  }
  return text;
}

class Gpt : public PipelineTest {
 protected:
  /// Writes a text of a few batches and a smaller last one, from the book.
  void make_text() { write_bytes(folder() / "text", book().substr(1000, unless_sanitized<std::size_t>(1500, 900))); }
  Outcome train_gpt(const std::string& program, const std::string& out, const Flags& flags) {
    return run(program, joined(joined(kSmallGpt, {"--data", "text:text", "--out", out}), flags));
  }
  void train_same(const std::string& program, const std::string& out, const Flags& flags, const std::string& wanted) {
    const Outcome outcome = train_gpt(program, out, flags);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(sample_in(outcome.out), samples_[wanted]) << out;
    expect_same_weights(out, wanted);
  }
  /// Trains on one device.
  void train_one(const std::string& out, const Flags& flags) {
    const Outcome outcome = train_gpt(kCh01, out, flags);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    samples_[out] = sample_in(outcome.out);
    EXPECT_NE(samples_[out], "");
  }

  std::map<std::string, std::string> samples_;
};

TEST_F(Gpt, TrainsAndWritesTheSameBytesInEveryPipeline) {
  make_text();
  train_one("one", {});
  train_same(kCh02, "naive", {"--ranks", "3"}, "one");
  train_same(kCh07, "controller", {"--ranks", "2", "--form", "naive"}, "one");
  train_one("four", {"--microbatches", "4"});
  const Flags parts{"--microbatches", "4", "--ranks", "2"};
  train_same(kCh03, "gpipe", parts, "four");
  train_same(kCh03, "gpipe-by-hand", joined(parts, {"--schedule", "by-hand"}), "four");
  train_same(kCh04, "1f1b", joined(parts, {"--versions", "flush"}), "four");
  for (const std::string schedule : {"interleaved", "zbv", "zb-h1"}) {
    train_same(kCh05, schedule, joined(parts, {"--schedule", schedule}), "four");
  }
  train_same(kCh05, "recompute", joined(parts, {"--recompute"}), "four");
}

TEST_F(Gpt, TrainsTheSameBytesWhereRanksShareBatchesOrLayers) {
  make_text();
  train_one("four", {"--microbatches", "4"});
  for (const std::string mode : {"buckets", "central"}) {
    train_same(kCh06, mode, {"--ranks", "4", "--mode", mode}, "four");
  }
  train_one("slices", {"--microbatches", "2", "--tensor-slices", "2"});
  train_same(kCh08, "tp", {"--mesh", "tp=2", "--microbatches", "2"}, "slices");
  train_same(kCh08, "dp-pp-tp", {"--mesh", "dp=2,pp=2,tp=2"}, "slices");
  train_one("sliced-classes", {"--class-parallel", "--tensor-slices", "2"});
  train_same(kCh08, "classes", {"--class-parallel", "--mesh", "pp=2,tp=2"}, "sliced-classes");
}

// A call tells the worker which samples it is about, and so which activations are dropped.
TEST_F(Gpt, TrainsTheSameBytesByRemoteCalls) {
  make_text();
  train_one("four", {"--microbatches", "4"});
  const Outcome remote = train_gpt(kCh07, "remote", {"--form", "remote", "--splits", "4", "--balance", "layers"});
  ASSERT_EQ(remote.exit_code, 0) << remote.err;
  EXPECT_TRUE(sample_in(remote.out).starts_with(samples_["four"])) << remote.out;  // then the row of the table
  expect_same_weights("remote", "four");
}

// The embedding is on the first rank and the head on the last one, or, with zbv, both on the first.
TEST_F(Gpt, TiesItsHeadInEveryChapter) {
  make_text();
  const Flags tied{"--tie-head", "--clip-norm", "0.5", "--optimizer", "adamw"};
  train_one("one", tied);
  train_same(kCh07, "controller", joined(tied, {"--ranks", "3", "--form", "naive"}), "one");
  const Flags parts = joined(tied, {"--microbatches", "4"});
  train_one("four", parts);
  train_same(kCh03, "gpipe", joined(parts, {"--ranks", "3"}), "four");
  train_same(kCh04, "1f1b", joined(parts, {"--versions", "flush", "--ranks", "2"}), "four");
  train_same(kCh05, "head-alone", joined(parts, {"--schedule", "1f1b", "--ranks", "2", "--split", "6,1"}), "four");
  for (const std::string schedule : {"interleaved", "zbv"}) {
    train_same(kCh05, schedule, joined(parts, {"--schedule", schedule, "--ranks", "2"}), "four");
  }
  for (const std::string mode : {"buckets", "central"}) {
    train_same(kCh06, mode, joined(tied, {"--ranks", "4", "--mode", mode}), "four");
  }
  train_one("slices", joined(tied, {"--microbatches", "2", "--tensor-slices", "2"}));
  train_same(kCh08, "dp-pp-tp", joined(tied, {"--mesh", "dp=2,pp=2,tp=2"}), "slices");
  const auto weights = load_tensors((folder() / "four/weights.safetensors").string()).tensors;
  const auto named = [&](const std::string& name) {
    return std::find_if(weights.begin(), weights.end(), [&](const auto& tensor) { return tensor.first == name; })
        ->second;
  };
  EXPECT_TRUE(same_bytes(named("transformer.wte.weight"), named("lm_head.weight")));
}

TEST_F(Gpt, GoesOnExactlyWithOtherRanks) {
  make_text();
  train_one("whole", {"--microbatches", "2"});
  const Flags first = small_gpt_with("--epochs", "1");
  ASSERT_EQ(run(kCh03, joined(first, {"--data", "text:text", "--out", "part", "--microbatches", "2"})).exit_code, 0);
  ASSERT_EQ(run(kCh03, {"--resume", "part", "--epochs", "2", "--ranks", "3", "--data", "text:text"}).exit_code, 0);
  expect_same_weights("part", "whole");
}

TEST_F(Gpt, GoesOnExactlyWithATiedHeadOnAnotherRank) {
  make_text();
  const Flags tied{"--tie-head", "--optimizer", "adamw", "--microbatches", "2"};
  train_one("whole", tied);
  const Flags first = joined(small_gpt_with("--epochs", "1"), tied);
  ASSERT_EQ(run(kCh05, joined(first, {"--data", "text:text", "--out", "part", "--schedule", "zbv"})).exit_code, 0);
  ASSERT_EQ(run(kCh05, {"--resume", "part", "--epochs", "2", "--ranks", "3", "--schedule", "1f1b"}).exit_code, 0);
  expect_same_weights("part", "whole");
}

// A checkpoint has the embedding and the head in the shards of two ranks, and is resumed by other ones.
TEST_F(Gpt, TiesItsHeadWhateverIsSharded) {
  make_text();
  const Flags tied{"--tie-head", "--clip-norm", "0.5", "--optimizer", "adamw"};
  train_one("four", joined(tied, {"--microbatches", "4"}));
  train_one("two-groups", joined(tied, {"--microbatches", "4", "--sum-groups", "2"}));
  train_same(kCh09, "copies", joined(tied, {"--mesh", "dp=2,shard=2"}), "two-groups");
  const Flags first = joined(small_gpt_with("--epochs", "1"), tied);
  for (const std::string shard : {"optimizer", "gradients", "parameters"}) {
    const Flags flags{"--data", "text:text", "--out", "part", "--ranks", "4", "--shard", shard};
    const Outcome part = run(kCh09, joined(first, flags));
    ASSERT_EQ(part.exit_code, 0) << part.err;
    const Outcome more = run(kCh09, {"--resume", "part", "--epochs", "2", "--shard", "parameters", "--prefetch", "2"});
    ASSERT_EQ(more.exit_code, 0) << more.err;
    expect_same_weights("part", "four");
  }
  const Flags from = joined(tied, {"--weights", "four/weights.safetensors"});
  train_one("more", joined(from, {"--microbatches", "3"}));
  train_same(kCh09, "more-shards", joined(from, {"--ranks", "3"}), "more");
}

// What a plan says of tied weights is what a run sends, and what its ranks hold: the copy has no optimizer's state.
TEST_F(Gpt, PlansWhatATiedHeadCosts) {
  make_text();
  const auto planned = [&](const Flags& more) {
    const Flags plan{"--data",   "text:text", "--out",       "plan",        "--explain", "--clock",
                     "modelled", "--link",    "ethernet100", "--schedule",  "1f1b",      "--ranks",
                     "3",        "--balance", "layers",      "--optimizer", "adamw"};
    const Outcome outcome = run(kCh05, joined(joined(small_gpt_with("--sample", "0"), plan), more));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return std::pair(outcome.out, planned_step("plan"));
  };
  const auto [untied_text, untied] = planned({});
  const auto [text, tied] = planned({"--tie-head"});
  EXPECT_EQ(untied_text.find("2 -> 0"), std::string::npos);
  EXPECT_TRUE(std::regex_search(text, std::regex("0 -> 2 +1 +0\\.016"))) << text;  // 256 x 16 float32
  EXPECT_TRUE(std::regex_search(text, std::regex("2 -> 0 +1 +0\\.016"))) << text;
  EXPECT_GT(tied["step_seconds"], untied["step_seconds"]);
  const double saved = untied["memory_bytes"][2].get<double>() - tied["memory_bytes"][2].get<double>();
  EXPECT_GE(saved, 2 * 256 * 16 * 4);  // Adam's two moments
}

TEST_F(Gpt, IsPlannedInEveryChapter) {
  const Flags plan{"--model", "gpt", "--explain", "--clock", "modelled"};
  EXPECT_EQ(ch01(plan).exit_code, 0);
  for (const std::string& program : {kCh02, kCh03, kCh04, kCh05, kCh06, kCh07, kCh08}) {
    const Outcome outcome = run(program, joined(plan, {"--ranks", "2"}));
    EXPECT_EQ(outcome.exit_code, 0) << program << outcome.err;
  }
  EXPECT_EQ(run(kCh03, joined(plan, {"--ranks", "2", "--dropout", "0.1"})).exit_code, 0);
}

TEST_F(Gpt, RefusesWhatDoesNotFit) {
  const auto refused = [&](const Flags& flags, const std::string& part) {
    const Outcome outcome = ch01(flags);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  };
  refused({"--model", "gpt", "--data", "generated"}, "--model gpt takes text; give --data text:book");
  refused({"--data", "text:book"}, "--model convnet takes images");
  refused({"--model", "gpt", "--augment"}, "--augment: --model gpt takes text");
  refused({"--model", "gpt", "--image-size", "8"}, "--image-size: --model gpt takes text");
  refused({"--dropout", "0.1"}, "--dropout: only --model gpt has it");
  refused({"--sample", "10"}, "--sample: only --model gpt has it");
  refused({"--model", "vit", "--context", "8"}, "expected no --context, got 8");
  refused({"--tie-head"}, "--tie-head: only --model gpt has it");
  refused({"--model", "gpt", "--tie-head", "--class-parallel", "--tensor-slices", "2"},
          "--tie-head: with --class-parallel the head is cut by classes");
  for (const auto& [program, flags] : {std::pair(kCh04, Flags{"--versions", "stash"}),
                                       {kCh04, {"--versions", "flush", "--replicas", "1,2"}},
                                       {kCh07, {"--form", "remote"}}}) {
    const Outcome outcome = run(program, joined({"--model", "gpt", "--tie-head"}, flags));
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    EXPECT_NE(outcome.err.find("--tie-head: "), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(ch01({"--model", "gpt", "--data", "text:nowhere"}).exit_code, 3);
}

/// Returns the mean loss of the bytes of `data`.
double loss_of(Module& model, const Dataset& data) {
  const NoGrad no_grad;
  model.train(false);
  Loader loader(data, {.shuffle = false, .prefetch = false});
  loader.start_epoch(1);
  double sum = 0;
  while (const auto batch = loader.next()) {
    sum += cross_entropy(model.forward(batch->inputs), batch->targets, Reduction::sum).item();
  }
  return sum / static_cast<double>(data.size());
}

std::vector<std::string> words_in(const std::string& text) {
  const std::regex word("[A-Za-z]+");
  std::vector<std::string> words;
  for (std::sregex_iterator i(text.begin(), text.end(), word); i != std::sregex_iterator(); ++i) {
    words.push_back(i->str());
  }
  return words;
}

// The command of docs/reference/gpt.md, which sees 2.8 million bytes.
TEST_F(Gpt, LearnsToWriteWordsOfTheBook) {
  if (kSanitized) {
    GTEST_SKIP() << "it is about what is learned, which takes over 25 minutes here; the other tests run the same code";
  }
  const Outcome outcome =
      ch01({"--model", "gpt", "--epochs", "9", "--batch-size", "16", "--optimizer", "adamw", "--lr", "0.003",
            "--lr-schedule", "cosine", "--lr-warmup", "100", "--sample", "2000", "--out", "run"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const TrainTest data = load_text("text:book");
  EXPECT_LE(9 * data.train.size() * 64, 3'000'000);
  const auto model = make_model("gpt", {.classes = kByteValues});
  model->materialize(0);
  EXPECT_NEAR(loss_of(*model, data.test), std::log(256.0), 0.1);
  const auto saved = load_tensors((folder() / "run/weights.safetensors").string()).tensors;
  for (auto& [name, parameter] : model->named_parameters()) {
    const auto found = std::find_if(saved.begin(), saved.end(), [&](const auto& t) { return t.first == name; });
    ASSERT_NE(found, saved.end()) << name;
    Tensor(parameter).copy_from(found->second);
  }
  const double loss = loss_of(*model, data.test);
  EXPECT_LT(loss, 1.5);
  const auto all = words_in(book());
  const std::set<std::string> known(all.begin(), all.end());
  const auto written = words_in(sample_in(outcome.out));
  const auto real = std::count_if(written.begin(), written.end(), [&](const auto& word) { return known.count(word); });
  EXPECT_GT(written.size(), 200U);
  EXPECT_GE(static_cast<double>(real), 0.8 * static_cast<double>(written.size()));
  RecordProperty("loss", std::to_string(loss));
  RecordProperty("words", std::to_string(real) + " of " + std::to_string(written.size()));
}

}  // namespace
}  // namespace stagecoach::test
