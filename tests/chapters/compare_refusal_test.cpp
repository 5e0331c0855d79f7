/// @file
/// Runs that did other work, and files that are no runs: `compare` says what, where and what to do.

#include <algorithm>

#include "tests/chapters/compare.h"

namespace stagecoach::test {
namespace {

namespace fs = std::filesystem;

class CompareRefusal : public CompareTest {};

TEST_F(CompareRefusal, DifferentWorkIsRefused) {
  write_run("a", {1, 1}, {{"image-size", 32}, {"augment", false}, {"smoke", false}});
  write_run("batch", {1, 1}, {{"batch-size", 128}});
  expect_refusal("a", "batch", {"batch-size: expected 64, got 128", "--batch-size"});
  write_run("data", {1, 1}, {{"data", "others"}});
  expect_refusal("a", "data", {"data: expected images, got others", "--data"});
  write_run("epochs", {1, 1, 1});
  expect_refusal("a", "epochs", {"finished epochs: expected 2, got 3", "--epochs"});
  write_run("smoke", {1, 1}, {{"smoke", true}});
  expect_refusal("a", "smoke", {"smoke: expected false, got true"});
  write_run("size", {1, 1}, {{"image-size", 224}});
  expect_refusal("a", "size", {"image-size: expected 32, got 224"});
  write_run("augment", {1, 1}, {{"augment", true}});
  expect_refusal("a", "augment", {"augment: expected false, got true"});
  write_run("virtual", {1, 1}, {}, {{"clock", "virtual"}});
  expect_refusal("a", "virtual", {"clock: expected wall, got virtual", "--clock"});
  write_run("grown", {1, 1}, {}, {{"images_per_second", 1030}});
  expect_refusal("a", "grown", {"images per epoch: expected 1000, got 1030", "the same data"});
}

TEST_F(CompareRefusal, EveryReasonHasItsLineAndOtherRunsTheirSpeedUp) {
  write_run("a", {1, 1});
  write_run("b", {1, 1, 1}, {{"batch-size", 128}, {"data", "others"}}, {{"clock", "virtual"}});
  write_run("c", {1, 0.5});
  const Outcome outcome = compare({"a", "b", "c"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 4) << outcome.err;
  EXPECT_EQ(cell(outcome, "b", "speed-up"), "-");
  EXPECT_EQ(cell(outcome, "b", "epoch time"), "1.000 s");
  EXPECT_EQ(cell(outcome, "c", "speed-up"), "2.00");
}

TEST_F(CompareRefusal, TheSameWorkIsNotRefused) {
  write_run("a", {1, 1});
  write_run("near", {1, 1}, {{"data", "./images/"}}, {{"images_per_second", 1010}});
  write_run("ways", {1, 1}, {{"microbatches", 8}, {"schedule", "1f1b"}, {"seed", 7}, {"device", "cuda"}});
  const Outcome outcome = compare({"a", "near", "ways"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out.find("note:"), std::string::npos) << outcome.out;
  write_run("model", {1, 1}, {{"model", "resnet18"}});
  write_run("a", {1, 1}, {{"model", "convnet"}});
  const Outcome models = compare({"a", "model"});
  EXPECT_EQ(models.exit_code, 0) << models.err;
  expect_texts(models.out, {"note: model compared with a: model resnet18 instead of convnet"});
}

TEST_F(CompareRefusal, ARunWithoutItsConfigIsReadAndSaidToBeUnknown) {
  write_run("a", {2, 2});
  write_run("b", {1, 1});
  fs::remove(folder() / "b/config.json");
  const Outcome outcome = compare({"a", "b"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(cell(outcome, "b", "speed-up"), "2.00");
  expect_texts(outcome.out, {"note: b compared with a: the data is not known for both", "1000 and 1000", "2%",
                             "note: b compared with a: the batch size is not known for both"});
}

TEST_F(CompareRefusal, UsageErrors) {
  write_run("a", {1, 1});
  expect_error({}, 2, {"RUN", "--help"});
  expect_error({"a", "--nonsense"}, 2, {"--nonsense", "--help"});
  expect_error({"a", "--markdown=rsi"}, 2, {"--markdown", "--help"});
  expect_error({"a", "--svg", ""}, 2, {"--svg", "file"});
  expect_error({"a", "--baseline", ""}, 2, {"--baseline", "run"});
  expect_error({"a", ""}, 2, {"empty"});
  const Outcome help = compare({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  expect_texts(help.out, {"--svg", "--baseline", "--markdown", "Example:\n  compare runs/"});
  EXPECT_EQ(shell(kCompare + " a > /dev/full").exit_code, 3);
}

TEST_F(CompareRefusal, WhatIsNoRunIsADataError) {
  expect_error({"nowhere"}, 3, {"nowhere", "--out folder"});
  fs::create_directory(folder() / "empty");
  expect_error({"empty"}, 3, {"empty", "metrics.jsonl"});
  write("new/metrics.jsonl", "");
  expect_error({"new"}, 3, {"new", "at least one finished epoch", "Epoch: 3, Loss: 1.97"});
  fs::create_directories(folder() / "odd/metrics.jsonl");
  expect_error({"odd"}, 3, {"odd/metrics.jsonl: expected a regular file"});
  write("words.log", "No epoch is here.\n");
  expect_error({"words.log"}, 3, {"words.log", "at least one finished epoch"});
  write_run("a", {1, 1});
  expect_error({"a", "words.log"}, 3, {"words.log"});
}

TEST_F(CompareRefusal, DamagedFilesAreDataErrors) {
  write_run("a", {1, 1});
  const std::string good = read_bytes(folder() / "a/metrics.jsonl");
  const auto expect_damage = [&](const std::string& text, const Texts& texts) {
    write("a/metrics.jsonl", text);
    expect_error({"a"}, 3, texts);
  };
  expect_damage(good.substr(0, good.size() - 9), {"a/metrics.jsonl, line 2", "expected a JSON object"});
  expect_damage(good.substr(0, good.size() - 1) + std::string("\0 more", 6), {"line 2", "is not valid JSON"});
  expect_damage("{\"event\":\"epoch\",\"event\":\"other\"}\n" + good, {"line 1", "contains 'event' twice"});
  expect_damage("[1]\n" + good, {"line 1", "expected a JSON object"});
  const std::string epoch = "{\"event\":\"epoch\",";
  expect_damage(good + epoch + "\"epoch\":3,\"loss\":1}", {"line 3", "'seconds' is missing"});
  expect_damage(good + epoch + "\"epoch\":3,\"seconds\":1}", {"line 3", "'loss' is missing"});
  expect_damage(good + epoch + "\"loss\":3,\"seconds\":1}", {"line 3", "'epoch'"});
  expect_damage(good + epoch + "\"epoch\":-3,\"loss\":3,\"seconds\":1}",
                {"line 3", "'epoch' is out of range: expected 0 to 1000000000, got -3"});
  expect_damage(good + epoch + "\"epoch\":3,\"loss\":3,\"seconds\":-1}", {"line 3", "'seconds'"});
  expect_damage(good + epoch + "\"epoch\":3,\"loss\":3,\"seconds\":1,\"idle\":-1}",
                {"line 3", "'idle'", "not negative"});
  expect_damage(good + epoch + "\"epoch\":3,\"loss\":3,\"seconds\":1,\"ideal_idle\":2e307}",
                {"line 3", "'ideal_idle' must be from 0 to 1"});
  expect_damage(good + epoch + "\"epoch\":3,\"loss\":\"2\",\"seconds\":1}", {"line 3", "'loss' must be a number"});
  expect_damage(good + epoch + "\"epoch\":3,\"loss\":2,\"seconds\":1,\"clock\":1}", {"line 3", "'clock'"});
  expect_damage(good + epoch + "\"epoch\":3,\"loss\":2,\"seconds\":1,\"peak_bytes\":[\"1\"]}",
                {"line 3", "'peak_bytes'"});
  expect_damage(good + epoch + "\"epoch\":3,\"loss\":2,\"seconds\":1,\"peak_bytes\":7}", {"line 3", "'peak_bytes'"});
  expect_damage(good + epoch + "\"epoch\":3,\"loss\":2,\"seconds\":1,\"peak_bytes\":[18446744073709551615]}",
                {"line 3", "'peak_bytes'", "from 0 to 2^63 - 1"});
  write("a/metrics.jsonl", good);
  write("a/config.json", "{\"program\": 7");
  expect_error({"a"}, 3, {"a/config.json is not valid JSON (line 1, column 14); restore the file"});
  write("a/config.json", std::string("{}\0 more", 8));
  expect_error({"a"}, 3, {"a/config.json is not valid JSON (line 1, column 3)"});
  write("a/config.json", "{\"program\":" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}");
  expect_error({"a"}, 3, {"a/config.json is nested too deeply"});
}

}  // namespace
}  // namespace stagecoach::test
