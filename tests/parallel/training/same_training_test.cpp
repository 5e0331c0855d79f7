// Whether a run is continued with the settings and the data that it was trained with.

#include "parallel/training/same_training.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/support/errors.h"

namespace stagecoach::test {
namespace {

TEST(SameTraining, HasEqualSettingsWhereBothHaveThem) {
  const std::string now = R"({"seed": 1, "lr": 0.01})";
  EXPECT_TRUE(trains_alike(now, now));
  EXPECT_TRUE(trains_alike(R"({"seed": 1, "a-setting-of-then": 1})", now));
  EXPECT_FALSE(trains_alike(R"({"seed": 7, "lr": 0.01})", now));
  EXPECT_FALSE(trains_alike("other", now));
  EXPECT_TRUE(trains_alike("", ""));
}

TEST(SameTraining, NeverAcceptsAnotherNumberOfClasses) {
  const RunOptions options{.resume = "run", .accept_new_data = true};
  EXPECT_TRUE(fails_with<OtherData>({"the 2 classes are now 3 ('c' is new)", "start a new run"}, [&] {
    require_same_data(Fingerprint{.classes = {"a", "b"}}, {.classes = {"a", "b", "c"}}, options);
  }));
}

TEST(SameTraining, ReadsWhatItWroteAndRefusesDamage) {
  const Fingerprint data{.classes = {"a", "\u00e9"},
                         .train = {.counts = {3, 4}, .digest = 0xffffffff},
                         .test = {.counts = {1, 0}, .digest = 7}};
  const std::string text = to_json(data);
  EXPECT_TRUE(fingerprint_from_json(text, "here") == data);
  for (const auto& [from, to] : {std::pair("3,", "3.5,"),
                                 {"3,", "-3,"},
                                 {"4294967295", "4294967296"},
                                 {"\"a\"", "1"},
                                 {"\"test\"", "\"tests\""},
                                 {"\"a\"", "\"a"}}) {
    std::string damaged = text;
    damaged.replace(damaged.find(from), std::string(from).size(), to);
    EXPECT_TRUE(fails_with<DataError>({"here: the record of the data"}, [&] {
      fingerprint_from_json(damaged, "here");
    })) << damaged;
  }
}

}  // namespace
}  // namespace stagecoach::test
