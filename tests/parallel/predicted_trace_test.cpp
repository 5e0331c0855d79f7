// Simulations as traces.

#include "parallel/pipeline/predicted_trace.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "core/trace.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/schedule_kinds.h"

namespace stagecoach {
namespace {

using Json = nlohmann::json;

TEST(PredictedTrace, HasEveryActionOnItsTrack) {
  const Schedule schedule = lower(make_schedule("gpipe", 2, 2));
  const std::string trace = predicted_trace(schedule, simulate(schedule, Costs::uniform(2, 1, 1, 1)));
  EXPECT_EQ(trace.rfind("{\"displayTimeUnit\"", 0), 0U);
  EXPECT_NE(trace.find("\"name\":\"1B1\",\"cat\":\"action\",\"ph\":\"X\",\"pid\":2,\"tid\":2,"
                       "\"ts\":5000000.000,\"dur\":2000000.000,\"args\":{\"operation\":\"backward\"}}"),
            std::string::npos)
      << trace;
  EXPECT_NE(trace.find("\"args\":{\"name\":\"rank 1\"}"), std::string::npos);
  const auto count = [&](const std::string& part) {
    int found = 0;
    for (std::size_t at = trace.find(part); at != std::string::npos; at = trace.find(part, at + 1)) {
      ++found;
    }
    return found;
  };
  EXPECT_EQ(count("\"cat\":\"action\""), 8);
  EXPECT_EQ(count("\"operation\":\"send\""), 4);
  EXPECT_EQ(count("\"ph\":\"s\""), 4) << "arrows begin at sends";
  EXPECT_EQ(count("\"ph\":\"f\""), 4) << "and end where the message is used";
  EXPECT_EQ(count("\"cat\":\"link\""), 4) << "a message each way for each micro-batch";
  for (const char* link : {"link 0 -> 1", "link 1 -> 0"}) {
    EXPECT_EQ(count(link), 1) << link;
  }
  EXPECT_EQ(count("wait for"), 2) << "rank 1 at its beginning, rank 0 for the first gradient";
}

/// Two stages whose messages take 3, and the link 2 of that.
Costs slow_link() {
  Costs costs = Costs::uniform(2, 1, 1, 1);
  costs.message = {3};
  costs.transfer = {2};
  return costs;
}

TEST(PredictedTrace, AMessageIsOnItsLinkUntilItArrives) {
  const Schedule schedule = lower(make_schedule("gpipe", 2, 1));
  const Json trace = Json::parse(predicted_trace(schedule, simulate(schedule, slow_link())));
  int links = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event.value("cat", "") == "link") {
      ++links;
      EXPECT_EQ(event["dur"], 3e6) << event;
      EXPECT_EQ(event["ts"], event["name"] == "0SEND_F0" ? 1e6 : 7e6) << event;
    }
  }
  EXPECT_EQ(links, 2);
}

TEST(PredictedTrace, AMessageHasItsBytes) {
  const Schedule schedule = lower(make_schedule("gpipe", 3, 1));
  std::multiset<int> bytes;
  const Simulation simulation = simulate(schedule, Costs::uniform(3, 1, 1, 1));
  const Json trace = Json::parse(predicted_trace(schedule, simulation, {10, 20}));
  for (const Json& event : trace["traceEvents"]) {
    if (event.value("cat", "") == "link") {
      bytes.insert(event["args"]["bytes"].get<int>());
    }
  }
  EXPECT_EQ(bytes, (std::multiset<int>{10, 10, 20, 20}));
}

/// Returns the events of the prediction of `steps` for `ranks`.
Json predicted(const Schedule& schedule, const Costs& costs, const std::vector<int>& ranks,
               const std::vector<TracedStep>& steps) {
  Trace trace(Trace::Process::predicted);
  add_predicted_steps(schedule, costs, ranks, steps, trace);
  return Json::parse(trace.to_json())["traceEvents"];
}

TEST(PredictedTrace, BesideARunEachStepBeginsWithTheRuns) {
  const Schedule schedule = lower(make_schedule("gpipe", 2, 3));
  std::set<double> starts;
  std::multiset<std::uint64_t> begun;
  std::multiset<std::uint64_t> ended;
  for (const Json& event : predicted(schedule, slow_link(), {0, 1}, {{0.5, 1, 1, 3}, {40, 1, 2, 3}})) {
    EXPECT_EQ(event["pid"], 2) << event;
    if (event["name"] == "0F0") {
      starts.insert(event["ts"].get<double>());
    } else if (event["ph"] == "s" || event["ph"] == "f") {
      (event["ph"] == "s" ? begun : ended).insert(event["id"].get<std::uint64_t>());
    }
  }
  EXPECT_EQ(starts, (std::set<double>{0.5e6, 40e6}));
  EXPECT_EQ(begun, ended);
  EXPECT_EQ(begun.size(), 2U * 3 * 2) << "steps, micro-batches and directions";
  EXPECT_EQ(std::set<std::uint64_t>(begun.begin(), begun.end()).size(), begun.size()) << "no arrow joins two steps";
}

/// Returns "track start+duration", in seconds, of each event with that name.
std::multiset<std::string> times_of(const Json& events, const std::string& name) {
  std::multiset<std::string> times;
  for (const Json& event : events) {
    if (event["name"] == name) {
      times.insert(event["tid"].dump() + " " + std::to_string(event["ts"].get<int>() / 1000000) + "+" +
                   std::to_string(event["dur"].get<int>() / 1000000));
    }
  }
  return times;
}
using Times = std::multiset<std::string>;

// One that lasts longer than the measured one stays whole, and the next one follows it.
TEST(PredictedTrace, StepsDoNotOverlap) {
  const Schedule schedule = lower(make_schedule("gpipe", 2, 1));
  Costs costs = Costs::uniform(2, 1, 1, 1);  // a step takes 6 s and the update
  costs.update = {1, 2};
  const Json events = predicted(schedule, costs, {0, 1}, {{0, 2, 8, 1}, {3, 2, 9, 1}, {20, 2, 10, 1}});
  EXPECT_EQ(times_of(events, "0F0"), (Times{"1 0+1", "1 7+1", "1 20+1"}));
  EXPECT_EQ(times_of(events, "optimizer"), (Times{"1 6+1", "1 13+1", "1 26+1", "2 4+2", "2 11+2", "2 24+2"}));
  EXPECT_EQ(times_of(events, "step 9"), (Times{"1 7+7", "2 7+7"}));
}

TEST(PredictedTrace, IsOnTheRanksThatRunTheSchedule) {
  const Schedule schedule = lower(make_schedule("gpipe", 2, 2));
  const Json events = predicted(schedule, Costs::uniform(2, 1, 1, 1), {1, 5}, {{0, 1, 1, 2}, {20, 1, 2, 1}});
  EXPECT_EQ(times_of(events, "1F0"), (Times{"6 1+1", "6 21+1"}));
  EXPECT_EQ(times_of(events, "0F1"), (Times{"2 1+1"})) << "the second step has one micro-batch";
}

// At the end of a step they overlap with other work, so they have a track of their own.
TEST(PredictedTrace, ReductionsAreBesideTheirRank) {
  const Schedule schedule = with_reductions(lower(make_schedule("gpipe", 1, 1)));
  Costs costs = Costs::uniform(1, 1, 1, 1);
  costs.average = {4};
  const Json events = predicted(schedule, costs, {0}, {{0, 1, 1, 1}});
  EXPECT_EQ(times_of(events, "0REDUCE_GRAD"), (Times{"1001 3+4"}));
  EXPECT_EQ(times_of(events, "wait for the reductions"), (Times{"1 3+4"}));
}

}  // namespace
}  // namespace stagecoach
