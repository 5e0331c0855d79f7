/// @file
/// What layers cost, written to a file and read from one: by hand, and by the chapters that split models.

#include "chapters/common/profile_file.h"

#include <fmt/format.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "tests/chapters/pipelines.h"
#include "tests/support/errors.h"

namespace stagecoach::test {
namespace {

/// A profile by hand of `layers` equal layers, whose forward takes 1 ms and whose backward 2.
Json by_hand(int layers) {
  Json json{{"model", "mine"}, {"device", "cuda"}, {"microbatch", 8}};
  for (int i = 0; i < layers; ++i) {
    json["layers"].push_back({{"name", fmt::format("blocks.{}", i)},
                              {"forward_seconds", 1e-3},
                              {"backward_input_seconds", 1e-3},
                              {"backward_weight_seconds", 1e-3},
                              {"kept_bytes", 4096},
                              {"freed_bytes", 0},
                              {"output_bytes", 1 << 20},
                              {"parameter_bytes", 1 << 22},
                              {"workspace_bytes", 0}});
  }
  return json;
}

TEST(ProfileFile, IsReadAsItWasWritten) {
  const ModelProfile profile = profile_from_json(by_hand(3).dump(), "mine.json");
  EXPECT_EQ(profile.names, (std::vector<std::string>{"blocks.0", "blocks.1", "blocks.2"}));
  EXPECT_EQ(profile.layers[1].forward, 1e-3);
  EXPECT_EQ(profile.layers[1].parameter_bytes, 1 << 22);
  EXPECT_EQ(to_json(profile_from_json(to_json(profile), "again")), to_json(profile));
}

TEST(ProfileFile, WithAMistakeIsRefusedByName) {
  using Edit = std::function<void(Json&)>;
  const std::vector<std::pair<Edit, const char*>> mistakes{
      {[](Json& j) { j.erase("microbatch"); }, "mine.json: 'microbatch' is missing: expected a whole number of images"},
      {[](Json& j) { j.erase("layers"); }, "mine.json: 'layers' is missing"},
      {[](Json& j) { j["layers"][1].erase("forward_seconds"); }, "layer 1: 'forward_seconds' is missing"},
      {[](Json& j) { j["layers"][1].erase("workspace_bytes"); }, "layer 1: 'workspace_bytes' is missing"},
      {[](Json& j) { j["stages"] = 1; }, "mine.json: unknown key \"stages\": expected only model, device, microbatch"},
      {[](Json& j) { j["layers"][2]["fwd"] = 1; }, "layer 2: unknown key \"fwd\": expected only name, forward_seconds"},
      {[](Json& j) { j["layers"][0]["forward_seconds"] = "fast"; }, "expected seconds from 0 to 1000000, got \"fast\""},
      {[](Json& j) { j["layers"][0]["forward_seconds"] = -1; }, "'forward_seconds': expected seconds from 0"},
      {[](Json& j) { j["layers"][0]["kept_bytes"] = -1; }, "'kept_bytes': expected a whole number of bytes from 0"},
      {[](Json& j) { j["layers"][0]["kept_bytes"] = 1.5; }, "got 1.5"},
      {[](Json& j) { j["layers"][0]["kept_bytes"] = 1e300; }, "got 1e+300"},
      {[](Json& j) { j["layers"][0]["kept_bytes"] = 18446744073709551615U; }, "got 18446744073709551615"},
      {[](Json& j) { j["layers"][2]["name"] = "blocks.1"; }, "layer 2: expected a name of its own, got 'blocks.1'"},
      {[](Json& j) { j["layers"][2]["name"] = "a\nb"; }, "'name': expected 1 to 64 letters"},
      {[](Json& j) { j["layers"] = Json::array(); }, "expected a list of 1 to 1024 layers, got 0"},
      {[](Json& j) { j["layers"] = by_hand(1025)["layers"]; }, "expected a list of 1 to 1024 layers, got 1025"},
      {[](Json& j) { j["layers"] = "none"; }, "got string"},
      {[](Json& j) { j["layers"][0] = 3; }, "layer 0: expected an object"},
      {[](Json& j) { j["device"] = "tpu"; }, "'device': expected \"cpu\" or \"cuda\", got \"tpu\""},
      {[](Json& j) { j["microbatch"] = 0; }, "'microbatch': expected a whole number of images from 1"},
      {[](Json& j) { j["depth"] = "six"; }, "'depth': expected a whole number from 0"},
      {[](Json& j) { j = Json::array(); }, "mine.json: expected an object"},
  };
  for (const auto& [edit, text] : mistakes) {
    Json json = by_hand(3);
    edit(json);
    EXPECT_TRUE(fails_with<DataError>({"mine.json", text}, [&] { profile_from_json(json.dump(), "mine.json"); }))
        << text;
  }
  EXPECT_TRUE(fails_with<DataError>({"mine.json is not valid JSON", "--profile --out writes a profile"},
                                    [] { profile_from_json("{\"model\": ", "mine.json"); }));
}

class ProfileFiles : public PipelineTest {
 protected:
  /// Measures with `program`, and checks that it predicts the same from the file without measuring.
  void expect_the_same_plan(const std::string& program, const Flags& flags) {
    const Outcome measured = run(program, joined(flags, {"--smoke", "--explain", "--profile", "--out", "plan"}));
    ASSERT_EQ(measured.exit_code, 0) << measured.err;
    const Outcome read =
        run(program, joined(flags, {"--smoke", "--explain", "--profile-file", "plan/profile.json", "--out", "again"}));
    ASSERT_EQ(read.exit_code, 0) << program << ": " << read.err;
    EXPECT_EQ(planned_step("again"), planned_step("plan")) << program;
    EXPECT_EQ(bytes("again/profile.json"), bytes("plan/profile.json")) << program;
    EXPECT_EQ(bytes("again/schedule_trace.json"), bytes("plan/schedule_trace.json")) << program;
  }
};

TEST_F(ProfileFiles, PredictInEveryChapterWhatTheMeasurementDid) {
  expect_the_same_plan(kCh02, {"--ranks", "2"});
  expect_the_same_plan(kCh03, {"--ranks", "2", "--microbatches", "4"});
  expect_the_same_plan(kCh03, {"--ranks", "2", "--microbatches", "4", "--batch-size", "4096"});  // more than there are
  expect_the_same_plan(kCh04, {"--ranks", "3", "--balance", "pipedream"});
  expect_the_same_plan(kCh05, {"--ranks", "2", "--microbatches", "4"});
  expect_the_same_plan(kCh06, {"--mesh", "dp=2,pp=2", "--microbatches", "2"});
  expect_the_same_plan(kCh08, {"--mesh", "pp=2,tp=2", "--microbatches", "2"});
}

TEST_F(ProfileFiles, AreWrittenAndReadByTrainings) {
  const Flags flags{"--smoke", "--ranks", "2", "--epochs", "1"};
  ASSERT_EQ(run(kCh03, joined(flags, {"--profile", "--out", "run"})).exit_code, 0);
  const Flags read{"--profile-file", "run/profile.json"};
  const Outcome again = run(kCh03, joined(joined(flags, read), {"--out", "again"}));
  ASSERT_EQ(again.exit_code, 0) << again.err;
  const auto stages = [](const std::string& out) { return out.substr(out.find("layers on ranks") - 10, 30); };
  EXPECT_NE(again.out.find("layers on ranks"), std::string::npos) << again.out;
  EXPECT_EQ(stages(again.out), stages(run(kCh03, joined(flags, read)).out));
  const Outcome controller = run(
      kCh07, {"--smoke", "--ranks", "2", "--microbatches", "4", "--epochs", "1", "--profile-file", "run/profile.json"});
  EXPECT_EQ(controller.exit_code, 0) << controller.err;

  expect_refused(kCh03, joined(joined(flags, read), {"--split", "6,6"}), {"stages are given", "leave out the flag"});
  expect_refused(kCh03, joined(joined(flags, read), {"--model", "mlp"}), {"for model convnet with 12 layers"});
  expect_refused(kCh03, joined(joined(flags, read), {"--microbatches", "8"}), {"micro-batches of", "--batch-size"});
  expect_refused(kCh06, joined(flags, read), {"--profile-file: this run has no pipeline"});
  Json json = Json::parse(bytes("run/profile.json"));
  json["layers"][3]["name"] = "convolution2";
  write("misnamed.json", json.dump());
  expect_refused(kCh03, joined(flags, {"--profile-file", "misnamed.json"}), {"its layer 3 is 'convolution2'"});
  json["layers"].erase(7);
  write("short.json", json.dump());
  expect_refused(kCh03, joined(flags, {"--profile-file", "short.json"}), {"it has 11 layers, model convnet has 12"});
  json = Json::parse(bytes("run/profile.json"));
  json["device"] = "cuda";
  write("elsewhere.json", json.dump());
  expect_refused(kCh03, joined(flags, {"--profile-file", "elsewhere.json"}), {"measured on cuda"});
  json["width"] = 77;
  write("sizes.json", json.dump());
  expect_refused(kCh03, joined(flags, {"--profile-file", "sizes.json"}), {"with width 77, the run has 0"});
  write("damaged.json", "{");
  EXPECT_EQ(run(kCh03, joined(flags, {"--profile-file", "damaged.json"})).exit_code, 3);
  EXPECT_EQ(run(kCh03, joined(flags, {"--profile-file", "absent.json"})).exit_code, 3);
}

/// Sets the layer's seconds, each of the forward and of the two parts of the backward.
void set_seconds(Json& layer, double forward, double backward_input, double backward_weight) {
  layer["forward_seconds"] = forward;
  layer["backward_input_seconds"] = backward_input;
  layer["backward_weight_seconds"] = backward_weight;
}

// 24 blocks with an embedding and a head. No split idles less (FastestSplit.OfATransformerIsTheBestOfAll).
TEST_F(ProfileFiles, AreSplitSoThatRanksAreBalanced) {
  Json json = by_hand(26);
  for (Json& layer : json["layers"]) {
    set_seconds(layer, 6e-3, 6e-3, 6e-3);
  }
  set_seconds(json["layers"].front(), 0.5e-3, 0, 0.5e-3);
  set_seconds(json["layers"].back(), 4e-3, 4e-3, 4e-3);
  write("transformer.json", json.dump());
  const Outcome plan = run(kCh05, {"--explain", "--profile-file", "transformer.json", "--schedule", "zbv", "--ranks",
                                   "8", "--microbatches", "16", "--batch-size", "128"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_NE(plan.out.find("step            1072.000 ms\n  idle            17.0% of the step"), std::string::npos)
      << plan.out;
}

// With --explain, a model is planned that no chapter has.
TEST_F(ProfileFiles, DescribeAModelThatDoesNotExistHere) {
  write("mine.json", by_hand(32).dump());
  const Flags file{"--batch-size", "128", "--microbatches", "16", "--profile-file", "mine.json"};
  const Outcome plan = run(kCh05, joined({"--schedule", "1f1b", "--ranks", "8", "--explain"}, file));
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_NE(plan.out.find("One step of mine"), std::string::npos) << plan.out;
  EXPECT_NE(plan.out.find("split     4,4,4,4,4,4,4,4 layers"), std::string::npos) << plan.out;
  EXPECT_NE(plan.out.find("step            276.000 ms"), std::string::npos) << plan.out;         // (16 + 7) * 4 * 3 ms
  EXPECT_NE(plan.out.find("idle            30.4% of the step"), std::string::npos) << plan.out;  // 7 / 23
  EXPECT_NE(plan.out.find("note: this is a plan for the layers in mine.json"), std::string::npos) << plan.out;
  EXPECT_NE(plan.out.find("0 -> 1              16      16.000"), std::string::npos) << plan.out;
  EXPECT_NE(plan.out.find("note: mine.json: layer 0 has 0.001 backward_input_seconds, which count"), std::string::npos);
  const Outcome mesh = run(kCh06, {"--mesh", "dp=2,pp=4", "--microbatches", "8", "--batch-size", "128", "--explain",
                                   "--profile-file", "mine.json"});
  EXPECT_EQ(mesh.exit_code, 0) << mesh.err;
  expect_refused(kCh05, joined({"--ranks", "8"}, file), {"it is for model mine with 32 layers"});
  expect_refused(kCh08, {"--mesh", "pp=2,tp=2", "--batch-size", "8", "--explain", "--profile-file", "mine.json"},
                 {"it is for model mine with 32 layers"});
}

}  // namespace
}  // namespace stagecoach::test
