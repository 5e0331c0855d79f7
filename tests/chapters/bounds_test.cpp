// What settings may be, from flags and from config.json alike.

#include "chapters/common/bounds.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "chapters/common/flag_table.h"
#include "chapters/common/settings.h"
#include "parallel/training/same_training.h"
#include "tests/chapters/pipelines.h"
#include "tests/support/errors.h"

namespace stagecoach::test {
namespace {

/// A chapter that has every flag.
Chapter whole_chapter() {
  Chapter chapter{.number = kEveryChapter,
                  .program = "every",
                  .title = "",
                  .example = "",
                  .defaults = {.training = {.momentum = 0.9},
                               .pipeline = {.versions = Versions::stash},
                               .data_parallel = {.mode = DataParallelMode::buckets}}};
  chapter.defaults.program = chapter.program;
  return chapter;
}

Flag flag(const std::string& name, const Chapter& chapter) {
  const std::vector<Flag> all = flag_table(chapter);
  return *std::find_if(all.begin(), all.end(), [&](const Flag& each) { return each.name == name; });
}

/// Why the flag would refuse `text`; "" if it would not.
std::string refusal(const std::string& setting, const std::string& text, const Chapter& chapter = whole_chapter()) {
  Settings settings;
  try {
    flag(setting, chapter).value.set(settings, text);
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

std::string plain(const std::string& setting, const std::string& text) {
  const FlagValue value = flag(setting, whole_chapter()).value;
  Settings settings;
  value.set(settings, text);
  return value.text(settings);
}

Json config() { return Json::parse(config_json(whole_chapter().defaults)); }

void read(const Json& json) { settings_from_json(json.dump(), "run/config.json", whole_chapter()); }

TEST(Bounds, TellWhatWasExpected) {
  const std::vector<std::tuple<const char*, const char*, const char*>> wrong{
      {"ranks", "4294967298", "expected a whole number from 1 to 16384, got '4294967298'"},
      {"ranks", "0", "from 1 to 16384"},
      {"batch-size", "32.9", "expected a whole number from 1 to 1048576, got '32.9'"},
      {"epochs", "1e300", "expected a whole number from 1 to 1073741824"},
      {"epochs", "-3", "got '-3'"},
      {"epochs", "", "got ''"},
      {"epochs", "0x10", "got '0x10'"},
      {"seed", " -1", "from 0 to 18446744073709551615, got ' -1'"},
      {"seed", "18446744073709551616", "from 0 to 18446744073709551615"},
      {"bucket-size", "-1", "expected a number of bytes from 1 to 1099511627776"},
      {"bucket-size", " -1", "such as 65536 or 64KiB, got ' -1'"},
      {"bucket-size", "KiB", "got 'KiB'"},
      {"bucket-size", "17179869184GiB", "got '17179869184GiB'"},  // 2^64
      {"lr", "1e-400", "expected 0 or a number from 1e-100 to 1e+100, got '1e-400'"},
      {"lr", "nan", "got 'nan'"},
      {"lr", "inf", "got 'inf'"},
      {"lr", "-1", "got '-1'"},
      {"momentum", "1", "expected a number from 0 to 0.999999"},
      {"timeout", "1e300", "expected a number from 1e-06 to 1000000"},
      {"timeout", "0", "got '0'"},
      {"clock", "foo", "expected one of wall, virtual, modelled, got 'foo'"},
      {"transport", "pigeon", "expected one of thread, mpi, nccl"},
      {"reduce", "tree", "expected one of ordered, native"},
      {"mode", "central ", "expected one of single, parameter, buckets, central, got 'central '"},
      {"versions", "both", "expected one of stash, vertical, 2bw, flush, none, got 'both'"},
      {"compress", "zip", "expected one of none, half, got 'zip'"},
      {"optimizer", "rmsprop", "expected one of sgd, adam, adamw, adagrad, got 'rmsprop'"},
      {"mesh", "dp=0", "not a mesh"},
      {"split", "5,,5", "layers per stage"},
      {"replicas", "16384,1", "at most 16384"},
      {"link", "string", "not a link"},
      {"device", "tpu", "unknown device 'tpu'"},
  };
  for (const auto& [setting, text, part] : wrong) {
    EXPECT_NE(refusal(setting, text).find(part), std::string::npos) << setting << ": " << refusal(setting, text);
  }
}

TEST(Bounds, GiveAPlainForm) {
  EXPECT_EQ(plain("epochs", "010"), "10") << "not the octal 8";
  EXPECT_EQ(plain("bucket-size", "64KiB"), "65536");
  EXPECT_EQ(plain("bucket-size", "1024GiB"), "1099511627776");
  EXPECT_EQ(plain("bucket-size", "1TiB"), "1099511627776");
  EXPECT_EQ(plain("bucket-size", "7"), "7");
  EXPECT_EQ(plain("lr", "0"), "0");
  EXPECT_EQ(plain("lr", "1e-2"), "0.01");
  EXPECT_EQ(plain("seed", "18446744073709551615"), "18446744073709551615");
  EXPECT_EQ(plain("balance", "pipedream"), "pipedream");
  EXPECT_EQ(plain("data", " any folder "), " any folder ");
}

TEST(Bounds, DependOnTheChapter) {
  const Chapter third{.number = 3, .program = "third", .title = "", .example = ""};
  const std::string why = refusal("balance", "pipedream", third);
  EXPECT_NE(why.find("one of layers, params, time, got"), std::string::npos) << why;
}

TEST(SettingsFile, IsReadAsItWasWritten) {
  Settings settings = whole_chapter().defaults;
  settings.training.seed = 18446744073709551615U;
  settings.training.lr = 0.1;
  settings.pipeline.balance = Balance::pipedream;
  EXPECT_EQ(config_json(settings_from_json(config_json(settings), "here", whole_chapter())), config_json(settings));
}

TEST(SettingsFile, HasTheBoundsOfTheFlags) {
  const std::vector<std::pair<const char*, Json>> wrong{
      {"ranks", 4294967298}, {"batch-size", 32.9},
      {"epochs", 1e300},     {"epochs", -3},
      {"clock", "foo"},      {"bucket-size", -1},
      {"optimizer", "foo"},  {"head", "foo"},
      {"balance", "foo"},    {"compress", "foo"},
      {"mode", "foo"},       {"versions", "foo"},
      {"model", "foo"},      {"transport", "mpi,nccl"},
      {"reduce", "tree"},    {"seed", 3e19},
      {"timeout", 1e300},    {"lr", -1},
      {"mesh", "dp=0"},      {"split", "2147483648"},
      {"epochs", "3"},       {"clock", 3},
      {"augment", 1},        {"ranks", nullptr},
      {"lr", Json::array()},
  };
  for (const auto& [setting, value] : wrong) {
    Json json = config();
    json[setting] = value;
    const std::string named = fmt::format("run/config.json: '{}': ", setting);
    EXPECT_TRUE(fails_with<DataError>({named.c_str(), "restore the original file"}, [&] { read(json); })) << setting;
  }
}

// A new setting that is a number needs a row in the table.
TEST(SettingsFile, EveryNumberHasBounds) {
  const Json good = config();
  for (const auto& [setting, value] : good.items()) {
    if (value.is_number()) {
      Json json = good;
      json[setting] = 1e300;
      EXPECT_THROW(read(json), DataError) << setting;
    }
  }
}

TEST(SettingsFile, OfAnOlderVersionHasDefaultsForWhatItLacks) {
  Json json = config();
  json.erase("receives");
  json.erase("reduce");
  const Settings settings = settings_from_json(json.dump(), "run/config.json", whole_chapter());
  EXPECT_EQ(Json::parse(config_json(settings)), config());
}

TEST(SettingsFile, OfAnOlderVersionTrainsAlike) {
  const std::string now = training_json(whole_chapter().defaults);
  Json saved = Json::parse(now);
  saved.erase("reduce");
  saved["a-flag-of-then"] = 1;
  EXPECT_TRUE(trains_alike(saved.dump(), now));
  saved["seed"] = 7;
  EXPECT_FALSE(trains_alike(saved.dump(), now));
}

// A setting that the program has no flag for cannot have been chosen.
TEST(SettingsFile, OfAChapterSetsWhatTheChapterOffers) {
  const Chapter third{.number = 3, .program = "third", .title = "", .example = ""};
  Json json = config();
  json["program"] = "third";
  json["mode"] = "single";
  json["recompute"] = true;
  const Settings settings = settings_from_json(json.dump(), "run/config.json", third);
  EXPECT_FALSE(settings.data_parallel.mode);
  EXPECT_TRUE(settings.pipeline.recompute);
}

TEST(SettingsFile, HasNoUnknownSettings) {
  Json json = config();
  json["rank"] = 2;
  EXPECT_TRUE(fails_with<DataError>({"run/config.json: unknown setting 'rank'", "restore the original file"},
                                    [&] { read(json); }));
}

TEST(SettingsFile, IsOfOneProgram) {
  Json json = config();
  json["program"] = "another";
  EXPECT_TRUE(fails_with<UsageError>({"run/config.json", "a run of another"}, [&] { read(json); }));
}

TEST(SettingsFile, IsOneJsonTextToItsEnd) {
  const auto refuses = [](const std::string& text, const char* reason) {
    return fails_with<DataError>({"run/config.json ", reason, "; restore the original file"},
                                 [&] { settings_from_json(text, "run/config.json", whole_chapter()); });
  };
  const std::string good = config().dump();
  EXPECT_TRUE(refuses(good + std::string("\0 more", 6), "is not valid JSON (line 1"));
  EXPECT_TRUE(refuses(good + good, "is not valid JSON"));
  EXPECT_TRUE(refuses("{\"seed\":1," + good.substr(1), "contains 'seed' twice"));
}

class ChangedConfig : public PipelineTest {};

TEST_F(ChangedConfig, IsADataError) {
  make_data(64, 32);
  ASSERT_EQ(train(kCh03, "run", {"--balance", "layers", "--microbatches", "2"}, "1").exit_code, 0);
  const Json good = Json::parse(bytes("run/config.json"));
  const auto resumed = [&](const char* setting, const Json& value) {
    Json json = good;
    json[setting] = value;
    write("run/config.json", json.dump());
    return run(kCh03, {"--resume", "run", "--epochs", "2"});
  };
  const auto expect_refused_file = [&](const char* setting, const Json& value, const std::string& part) {
    const Outcome outcome = resumed(setting, value);
    EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
    EXPECT_NE(outcome.err.find("run/config.json"), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  };
  expect_refused_file("ranks", 4294967298, "'ranks': expected a whole number from 1 to 16384, got '4294967298'");
  expect_refused_file("clock", "foo", "'clock': expected one of wall, virtual, modelled");
  expect_refused_file("microbatches", 64, "--microbatches 64: a batch of 32");  // each good, together not
  expect_refused_file("schedule", "foo", "--schedule foo");
  EXPECT_EQ(resumed("ranks", 3).exit_code, 0) << "legal, and trains the same";
}

class OneProcess : public PipelineTest {};

// torchrun --nproc-per-node 1 on a CPU.
TEST_F(OneProcess, OfTorchrunIsOneRank) {
  make_data(64, 32);
  const std::string torchrun =
      "RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none ";
  const std::string flags = " --data data --batch-size 32 --epochs 1 --microbatches 2 ";
  const Outcome outcome = shell(torchrun + kCh03 + flags + "--out run");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  ASSERT_EQ(shell(kCh01 + flags + "--out one").exit_code, 0);
  expect_same_training("run", "one");
  EXPECT_EQ(Json::parse(bytes("run/config.json"))["ranks"], 1);
  EXPECT_EQ(shell(torchrun + kCh03 + " --resume run --epochs 2").exit_code, 0);
  const Outcome mesh = shell(torchrun + kCh06 + " --smoke --mesh dp=2,pp=2");
  EXPECT_EQ(mesh.exit_code, 2);
  EXPECT_NE(mesh.err.find("--mesh dp=2,pp=2: expected a mesh of 1 rank, got 4"), std::string::npos) << mesh.err;
  const Outcome many = shell("WORLD_SIZE=2147483647 RANK=0 " + kCh03 + " --smoke");
  EXPECT_EQ(many.exit_code, 2);
  EXPECT_NE(many.err.find("expected at most 128"), std::string::npos) << many.err;
}

TEST_F(OneProcess, WritesAnErrorOnOneLine) {
  const Outcome outcome = run(kCh03, {"--clock", "wa\nll\033[31m"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("got 'wa\\nll\\x1b[31m'"), std::string::npos) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
}

}  // namespace
}  // namespace stagecoach::test
