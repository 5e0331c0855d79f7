#include "parallel/training/epoch_log.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <optional>
#include <string>

#include "core/base/error.h"
#include "tests/support/errors.h"

namespace stagecoach {
namespace {

const EpochResult kResult{.epoch = 3,
                          .loss = 1.9712,
                          .accuracy = 0.4949,
                          .test_accuracy = 0.4751,
                          .seconds = 1.8308,
                          .images_per_second = 27310.4,
                          .idle = 0.2139,
                          .peak_bytes = {1000, 2000},
                          .prediction = {.ideal_idle = 0.2},
                          .steps = 32};

TEST(EpochLog, LineHasTheFormThatOtherProgramsRead) {
  EXPECT_EQ(epoch_line(kResult),
            "Epoch: 3, Loss: 1.97, acc: 0.49, time cost: 1.83s, test acc: 0.48, 27310 img/s, idle 21.4% (ideal 20.0%)");
}

TEST(EpochLog, ObjectHasEveryKeyOfTheContract) {
  const auto json = nlohmann::json::parse(epoch_json(kResult));
  EXPECT_EQ(json["event"], "epoch");
  EXPECT_EQ(json["epoch"], 3);
  EXPECT_EQ(json["loss"], 1.9712);
  EXPECT_EQ(json["acc"], 0.4949);
  EXPECT_EQ(json["test_acc"], 0.4751);
  EXPECT_EQ(json["seconds"], 1.8308);
  EXPECT_EQ(json["clock"], "wall");
  EXPECT_EQ(json["images_per_second"], 27310.4);
  EXPECT_EQ(json["idle"], 0.2139);
  EXPECT_EQ(json["ideal_idle"], 0.2);
  EXPECT_EQ(json["peak_bytes"], (std::vector<int>{1000, 2000}));
}

TEST(EpochLog, ObjectHasWhatAReportNeeds) {
  EpochResult pipeline = kResult;
  pipeline.links = {{.from = 0, .to = 1, .bytes = 4096}};
  pipeline.prediction.delays = {1, 0};
  pipeline.step_parts = {{"ideal", 0.5}, {"bubble", 0.25}};
  pipeline.prediction.memory = {{{"weights", 100}}, {{"weights", 200}}};
  const auto json = nlohmann::json::parse(epoch_json(pipeline));
  EXPECT_EQ(json["steps"], 32);
  EXPECT_EQ(json["links"].dump(), "[[0,1,4096.0]]");
  EXPECT_EQ(json["delays"], (std::vector<int>{1, 0}));
  EXPECT_EQ(json["step_parts"]["bubble"], 0.25);
  EXPECT_EQ(json["predicted_memory"][1]["weights"], 200);
}

TEST(EpochLog, LeavesOutAccuraciesThatThereAreNot) {
  EpochResult regression = kResult;
  regression.accuracy.reset();
  regression.test_accuracy.reset();
  EXPECT_EQ(epoch_line(regression), "Epoch: 3, Loss: 1.97, time cost: 1.83s, 27310 img/s, idle 21.4% (ideal 20.0%)");
  const auto json = nlohmann::json::parse(epoch_json(regression));
  EXPECT_FALSE(json.contains("acc") || json.contains("test_acc"));
}

TEST(EpochLog, HasTheLossOfATest) {
  EpochResult regression = kResult;
  regression.accuracy.reset();
  regression.test_loss = 2.0125;
  EXPECT_EQ(nlohmann::json::parse(epoch_json(regression))["test_loss"], 2.0125);
  EXPECT_EQ(epoch_line(regression).find("test loss"), std::string::npos) << "a test's accuracy says more";
  regression.test_accuracy.reset();
  EXPECT_EQ(epoch_line(regression),
            "Epoch: 3, Loss: 1.97, time cost: 1.83s, test loss: 2.01, 27310 img/s, idle 21.4% (ideal 20.0%)");
}

TEST(EpochLog, EpochOfLine) {
  EXPECT_EQ(epoch_of_json(epoch_json(kResult), ""), 3);
  EXPECT_EQ(epoch_of_json("{\"event\":\"other\",\"epoch\":3}", ""), std::nullopt);
  const std::string damage[] = {"{\"event\":\"epoch\",\"epo",
                                epoch_json(kResult) + std::string("\0damage", 7),
                                epoch_json(kResult) + " {}",
                                "[1]",
                                "{\"event\":\"epoch\"}",
                                "{\"event\":\"epoch\",\"epoch\":-1}",
                                "{\"event\":\"epoch\",\"epoch\":1,\"epoch\":2}"};
  for (const std::string& line : damage) {
    EXPECT_TRUE(test::fails_with<DataError>({"FILE, line 2: ", "; correct the line, or move the file away"}, [&] {
      epoch_of_json(line, "FILE, line 2");
    })) << line;
  }
}

}  // namespace
}  // namespace stagecoach
