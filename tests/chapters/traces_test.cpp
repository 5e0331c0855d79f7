/// @file
/// trace.json of the chapters: a track per rank and per link direction, whether a program sends by hand or an executor
/// does, and the prediction beside the run.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/chapters/pipelines.h"

namespace stagecoach::test {
namespace {

/// The contents of a process of a trace.
struct TraceContents {
  std::set<std::string> tracks;
  std::set<std::string> names;  // with their categories
  std::vector<double> steps;    // when each began, in microseconds
  std::multiset<std::uint64_t> begun;
  std::multiset<std::uint64_t> ended;
};

using TracedProcesses = std::map<int, TraceContents>;  // by number: the run, and its prediction
using Tracks = std::set<std::string>;

class Traces : public PipelineTest {
 protected:
  /// Trains two steps by a virtual clock, and returns what their trace shows.
  TracedProcesses trace_of(const std::string& program, const Flags& flags) {
    const Outcome outcome = run(program, joined({"--data", "data", "--out", "run", "--batch-size", "32", "--epochs",
                                                 "1", "--clock", "virtual", "--link", "ethernet100"},
                                                flags));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    const Json trace = Json::parse(bytes("run/trace.json"));
    TracedProcesses processes;
    for (const Json& event : trace["traceEvents"]) {
      TraceContents& process = processes[event["pid"].get<int>()];
      if (event["name"] == "thread_name") {
        process.tracks.insert(event["args"]["name"].get<std::string>());
      } else if (event["ph"] == "X") {
        process.names.insert(event["name"].get<std::string>() + " " + event["cat"].get<std::string>());
        if (event["name"] == "0F0") {
          process.steps.push_back(event["ts"].get<double>());
        }
      } else if (event["ph"] == "s" || event["ph"] == "f") {
        (event["ph"] == "s" ? process.begun : process.ended).insert(event["id"].get<std::uint64_t>());
      }
    }
    for (const auto& [number, process] : processes) {
      EXPECT_EQ(process.begun, process.ended) << "each arrow goes from a send to the use of its message";
    }
    return processes;
  }
  static void expect_names(const TraceContents& process, const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      EXPECT_TRUE(process.names.contains(name)) << name;
    }
  }
};

TEST_F(Traces, ShowTheRunAndItsPrediction) {
  make_data(128, 16);
  const TracedProcesses processes = trace_of(kCh05, {"--chunks", "2", "--microbatches", "4"});
  ASSERT_EQ(processes.size(), 2U) << "measured and predicted";
  for (const auto& [number, process] : processes) {
    EXPECT_EQ(process.tracks, (Tracks{"rank 0", "rank 1", "link 0 -> 1", "link 1 -> 0"}));
    EXPECT_EQ(process.steps.size(), 4U);
    EXPECT_EQ(process.begun.size(), 4U * 4 * 3 * 2) << "steps, micro-batches, borders and directions";
    expect_names(process, {"0F0 action", "3B0 action", "0SEND_F0 message", "0SEND_F0 link"});
  }
  EXPECT_EQ(processes.at(1).steps[0], processes.at(2).steps[0])
      << "a predicted step begins when the measured one began";
  for (std::size_t i = 1; i < 4; ++i) {
    EXPECT_GE(processes.at(2).steps[i], processes.at(1).steps[i]) << "or later, if the one before lasts longer";
  }
  expect_names(processes.at(1), {"receive wait", "send wait", "optimizer update", "conv2d forward"});
  expect_names(processes.at(2), {"wait for 1F0 wait"});
}

TEST_F(Traces, ShowWhatIsSentByHand) {
  make_data(64, 16);
  struct Program {
    std::string path;
    Flags flags;
    std::size_t microbatches;
  };
  for (const auto& [path, flags, microbatches] :
       std::vector<Program>{{kCh02, {}, 1},
                            {kCh03, {"--schedule", "by-hand", "--microbatches", "4"}, 4},
                            {kCh04, {"--schedule", "by-hand", "--versions", "flush", "--microbatches", "4"}, 4}}) {
    SCOPED_TRACE(path);
    const TracedProcesses processes = trace_of(path, joined({"--ranks", "3"}, flags));
    ASSERT_EQ(processes.size(), 2U) << "measured and predicted";
    for (const auto& [number, process] : processes) {
      EXPECT_EQ(process.tracks,
                (Tracks{"rank 0", "rank 1", "rank 2", "link 0 -> 1", "link 1 -> 0", "link 1 -> 2", "link 2 -> 1"}));
      EXPECT_EQ(process.begun.size(), 2 * microbatches * 2 * 2) << "steps, micro-batches, borders and directions";
    }
    expect_names(processes.at(1), {"0F0 action", "0SEND_F0 link", "1SEND_B0 link", "receive wait", "send wait"});
  }
}

TEST_F(Traces, ShowEachModeOfDataParallelismAndItsPrediction) {
  make_data(64, 16);
  const std::map<std::string, std::vector<std::string>> names{
      {"single", {"all_reduce communication", "all_reduce link"}},
      {"parameter", {"all_reduce communication", "all_reduce link"}},
      {"buckets", {"reduce bucket communication", "all_reduce link"}},
      {"central", {"gather gradients communication", "reduce link", "send weights communication", "broadcast link"}}};
  for (const auto& [mode, expected] : names) {
    SCOPED_TRACE(mode);
    const TracedProcesses processes = trace_of(kCh06, {"--mode", mode, "--microbatches", "2"});
    ASSERT_EQ(processes.size(), 2U) << "measured and predicted";
    EXPECT_EQ(processes.at(2).tracks, (Tracks{"rank 0", "rank 1", "beside rank 0", "beside rank 1"}));
    Tracks measured{"rank 0", "rank 1", "link 0 -> 1", "link 1 -> 0"};
    if (mode == "parameter" || mode == "buckets") {
      measured.insert({"beside rank 0", "beside rank 1"});
    } else {  // waits for its collectives; beside a long backward nothing may be left to wait for
      expect_names(processes.at(2), {"wait for update wait"});
    }
    EXPECT_EQ(processes.at(1).tracks, measured);
    EXPECT_EQ(processes.at(1).steps.size(), 4U) << "of two ranks";
    expect_names(processes.at(1), expected);
    expect_names(processes.at(1), {"0F0 action", "0B0 action"});
    expect_names(processes.at(2), {"forward action", "backward action", "update update"});
  }
}

}  // namespace
}  // namespace stagecoach::test
