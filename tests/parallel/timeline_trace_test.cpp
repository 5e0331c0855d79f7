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

/// A step in which rank 0 copies the model, and updates it.
Timeline step() {
  using Kind = Bar::Kind;
  return {.bars = {{"copy model", Kind::communication, 0, 1, 1},
                   {"forward", Kind::compute, 1, 2, 1},
                   {"backward", Kind::compute, 2, 4, 1},
                   {"gather gradients", Kind::communication, 4, 7, 1},
                   {"update", Kind::update, 7, 8, 0.5}},
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
  EXPECT_EQ(times, (std::map<std::string, std::string>{{"1 wait for forward", "10+1"},
                                                       {"1 forward", "11+1"},
                                                       {"1 backward", "12+2"},
                                                       {"1 wait for update", "14+3"},
                                                       {"1 update", "17+1"},
                                                       {"2 wait for forward", "10+1"},
                                                       {"2 forward", "11+1"},
                                                       {"2 backward", "12+2"},
                                                       {"2 wait for the end of the step", "14+4"},
                                                       {"1 step 1", "10+8"},
                                                       {"2 step 1", "10+8"},
                                                       {"1001 copy model", "10+1"},
                                                       {"1001 gather gradients", "14+3"},
                                                       {"1002 copy model", "10+1"},
                                                       {"1002 gather gradients", "14+3"}}));
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
