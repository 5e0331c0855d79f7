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

namespace stagecoach::test {
namespace {

const Flags kSmallGpt{"--model",   "gpt", "--depth",  "3",  "--width",  "16", "--heads",      "2", "--context", "16",
                      "--dropout", "0.2", "--sample", "20", "--epochs", "2",  "--batch-size", "16"};

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

 private:
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
  const Flags by_classes =
      joined({kSmallGpt.begin(), kSmallGpt.begin() + 12}, {"--data", "text:text", "--class-parallel"});  // no --sample
  ASSERT_EQ(run(kCh01, joined(by_classes, {"--tensor-slices", "2", "--out", "sliced-classes"})).exit_code, 0);
  ASSERT_EQ(run(kCh08, joined(by_classes, {"--mesh", "tp=2", "--out", "classes"})).exit_code, 0);
  expect_same_weights("classes", "sliced-classes");
}

TEST_F(Gpt, GoesOnExactlyWithOtherRanks) {
  make_text();
  train_one("whole", {"--microbatches", "2"});
  Flags first = kSmallGpt;
  first[std::find(first.begin(), first.end(), "--epochs") - first.begin() + 1] = "1";
  ASSERT_EQ(run(kCh03, joined(first, {"--data", "text:text", "--out", "part", "--microbatches", "2"})).exit_code, 0);
  ASSERT_EQ(run(kCh03, {"--resume", "part", "--epochs", "2", "--ranks", "3", "--data", "text:text"}).exit_code, 0);
  expect_same_weights("part", "whole");
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
  refused({"--model", "gpt", "--sample", "9", "--class-parallel", "--tensor-slices", "2"}, "--sample: with");
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
