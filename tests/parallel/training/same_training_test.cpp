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

TEST(SameTraining, SaysWhetherOtherPartsOfABatchChangeBytes) {
  const auto note = [](const BatchParts& saved, const BatchParts& now) {
    const auto notes = parts_notes(parts_from_text(to_text(saved), "here"), now);
    return notes.empty() ? "" : notes[0];
  };
  const auto changes = [&](const BatchParts& saved, const BatchParts& now) {
    return note(saved, now).find("end with other bytes") != std::string::npos;
  };
  EXPECT_EQ(note({4, 1}, {4, 1}), "");
  EXPECT_EQ(note({4, 1}, {1, 4}),
            "a batch has the 4 parts that it had (1 replica with 4 micro-batches, before 4 replicas with 1 micro-batch "
            "each), so the weights end with the same bytes, unless there is batch norm");
  EXPECT_EQ(note({4, 1}, {2, 1}),
            "a batch has other parts (2 replicas with 1 micro-batch each, before 4 replicas with 1 micro-batch each), "
            "whose gradients are added in another order, so the weights end with other bytes than those of an "
            "undisturbed run; to keep them, resume with the same numbers, or 1 replica with 4 micro-batches");
  EXPECT_TRUE(changes({1, 4}, {1, 8}));
  EXPECT_TRUE(changes({2, 2}, {1, 4})) << "gradients are added within replicas first";
  EXPECT_TRUE(changes({1, 4, 1}, {1, 4, 2})) << "layers are cut";
  EXPECT_TRUE(parts_notes({}, BatchParts{4, 1}).empty()) << "an older version did not save them";
  EXPECT_TRUE(fails_with<DataError>({"here: the record of the parts"}, [] { parts_from_text("4 x 1", "here"); }));
}

}  // namespace
}  // namespace stagecoach::test
