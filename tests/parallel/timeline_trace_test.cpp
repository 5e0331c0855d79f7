// Predicted data-parallel steps as traces.

#include "parallel/data_parallel/timeline_trace.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/trace.h"

namespace stagecoach {
namespace {

using Json = nlohmann::json;

/// A step in which rank 0 updates the model.
Timeline step() {
  using Kind = Bar::Kind;
  return {.bars = {{"forward", Kind::compute, 0, 1, 1},
                   {"backward", Kind::compute, 1, 3, 1},
                   {"gather gradients", Kind::communication, 3, 6, 1},
                   {"update", Kind::update, 6, 7, 0.5},
                   {"send weights", Kind::communication, 7, 8, 1}},
          .seconds = 8};
}

/// Returns the events of the prediction of `steps`.
Json predicted(const std::vector<int>& ranks, const std::vector<TracedStep>& steps) {
  Trace trace(Trace::Process::predicted);
  add_predicted_steps(step(), ranks, steps, trace);
  return Json::parse(trace.to_json())["traceEvents"];
}

TEST(TimelineTrace, ShowsWorkWaitsAndCommunicationOfEachRank) {
  const Json trace = predicted({0, 1}, {{11}});
  std::map<std::string, std::string> times;  // in seconds, by track and name
  for (const Json& event : trace) {
    EXPECT_EQ(event["pid"], 2) << event;
    if (event["ph"] == "X") {
      times[event["tid"].dump() + " " + event["name"].get<std::string>()] =
          std::to_string(event["ts"].get<int>() / 1000000) + "+" + std::to_string(event["dur"].get<int>() / 1000000);
    }
  }
  EXPECT_EQ(times, (std::map<std::string, std::string>{{"1 forward", "11+1"},
                                                       {"1 backward", "12+2"},
                                                       {"1 wait for update", "14+3"},
                                                       {"1 update", "17+1"},
                                                       {"1 wait for the end of the step", "18+1"},
                                                       {"2 forward", "11+1"},
                                                       {"2 backward", "12+2"},
                                                       {"2 wait for the end of the step", "14+5"},
                                                       {"1 step 1", "11+8"},
                                                       {"2 step 1", "11+8"},
                                                       {"1001 gather gradients", "14+3"},
                                                       {"1001 send weights", "18+1"},
                                                       {"1002 gather gradients", "14+3"},
                                                       {"1002 send weights", "18+1"}}));
}

TEST(TimelineTrace, EachStepBeginsWithTheRunsUnlessTheOneBeforeLastsLonger) {
  const Json trace = predicted({0}, {{3}, {6, 1, 2}, {20, 1, 3}});
  std::set<double> forwards;
  for (const Json& event : trace) {
    if (event["name"] == "forward") {
      forwards.insert(event["ts"].get<double>());
    }
  }
  EXPECT_EQ(forwards, (std::set<double>{3e6, 11e6, 20e6}));
}

}  // namespace
}  // namespace stagecoach
