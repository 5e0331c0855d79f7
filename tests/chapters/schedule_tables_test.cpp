/// @file
/// Tables of actions, read from a file or made by the library, and the same orders written by hand: what programs train
/// from a table, and which tables they refuse.

#include <fmt/format.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/schedule_kinds.h"
#include "parallel/schedule/text.h"
#include "tests/chapters/pipelines.h"

namespace stagecoach::test {
namespace {

const std::string& kInterleavedProgram = kCh05;

class ScheduleTables : public PipelineTest {
 protected:
  /// Trains with the table NAME.csv, checks that one device with as many micro-batches trains the same, and returns
  /// what the former printed.
  std::string output_of_table(const std::string& name, const std::string& microbatches, const std::string& table) {
    const Outcome one = train(kCh01, name + "-one", {"--microbatches", microbatches});
    EXPECT_EQ(one.exit_code, 0) << one.err;
    const Flags flags{"--schedule", write(name + ".csv", table), "--microbatches", microbatches};
    const Outcome outcome = train(kInterleavedProgram, name, flags);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    expect_same_training(name, name + "-one");
    return outcome.out;
  }
};

/// "send to 1, forward of micro-batch 2": the messages of `rank` in its first step, out of the record that a run leaves
/// which fails.
std::vector<std::string> calls_in(const std::string& record, std::size_t count, int tags_per_microbatch) {
  std::vector<std::string> calls;
  std::istringstream lines(record);
  for (std::string line; std::getline(lines, line) && calls.size() < count;) {
    const Json event = Json::parse(line);
    const auto operation = event["operation"].get<std::string>();
    const bool is_message = operation == "send" || operation == "receive";
    if (is_message && event["in"].get<std::string>().find("micro-batch") != std::string::npos) {
      const int tag = event["tag"].get<int>();
      calls.push_back(fmt::format("{} {}, {} of micro-batch {}", operation, event["peer"].get<int>(),
                                  tag % 2 == 0 ? "forward" : "backward", tag / tags_per_microbatch));
    }
  }
  return calls;
}

/// The same as a lowered table has them.
std::vector<std::string> calls_in(const Schedule& schedule, std::size_t rank) {
  std::vector<std::string> calls;
  for (const Action& action : schedule.ranks[rank]) {
    if (is_message(action.operation)) {
      const Action other = is_send(action.operation) ? receive_of(action) : send_of(action);
      const bool goes_forward =
          action.operation == Operation::send_forward || action.operation == Operation::receive_forward;
      calls.push_back(fmt::format("{} {}, {} of micro-batch {}", is_send(action.operation) ? "send" : "receive",
                                  schedule.rank_of(other.stage, other.microbatch),
                                  goes_forward ? "forward" : "backward", action.microbatch));
    }
  }
  return calls;
}

// Written by torch.distributed.pipelining 2.15 for its ScheduleInterleaved1F1B: 2 ranks, 2 chunks, 4 micro-batches.
TEST_F(ScheduleTables, RunATableOfPyTorch) {
  make_ragged_data();
  output_of_table("torch", "4",
                  "0F0,0F1,2F0,2F1,,,0F2,2B0,0F3,2B1,2F2,0B0,2F3,0B1,,2B2,,2B3,,0B2,,0B3\r\n"
                  ",1F0,1F1,,3F0,3B0,3F1,3B1,1F2,1B0,1F3,1B1,3F2,3B2,3F3,3B3,,1B2,,1B3\r\n");
}

// Its backwards run from the last micro-batch to the first, and gradients are added from the first to the last.
TEST_F(ScheduleTables, RunALoopedBreadthFirstTableOfPyTorch) {
  make_ragged_data();
  const std::string out = output_of_table("bfs", "4",
                                          "0F0,0F1,0F2,0F3,2F0,2F1,2F2,2F3,,,2B3,2B2,2B1,2B0,0B3,0B2,0B1,0B0\r\n"
                                          ",1F0,1F1,1F2,1F3,3F0,3F1,3F2,3F3,3B3,3B2,3B1,3B0,1B3,1B2,1B1,1B0\r\n");
  const char* const note = "note: The backwards are not in the order of the micro-batches";
  EXPECT_NE(out.find(note), std::string::npos) << out;

  const Outcome explained = run(kInterleavedProgram, {"--smoke", "--explain", "--profile", "--balance", "layers",
                                                      "--schedule", "bfs.csv", "--microbatches", "4"});
  ASSERT_EQ(explained.exit_code, 0) << explained.err;
  EXPECT_NE(explained.out.find(note), std::string::npos) << explained.out;
  EXPECT_NE(explained.out.find("at most 3, 3 sets"), std::string::npos) << explained.out;
  EXPECT_NE(explained.out.find("MiB of gradients that wait for their turn"), std::string::npos) << explained.out;
}

// Those of DualPipeV hold pairs that PyTorch overlaps; those with communication more than this program reads.
TEST_F(ScheduleTables, RunOtherTablesOfPyTorch) {
  make_ragged_data();
  output_of_table(
      "dual", "4",
      "0F0,0F1,0F2,3F0,3I0,3W0,3F1,(0F3;3B1)OVERLAP_F_B,(3F2;0B0)OVERLAP_F_B,3B2,(3F3;0B1)OVERLAP_F_B,3B3,0I2,0W2,"
      "0I3,0W3\r\n"
      "1F0,2F0,1F1,2F1,1F2,2B0,(2F2;1B0)OVERLAP_F_B,(1F3;2B1)OVERLAP_F_B,(2F3;1B1)OVERLAP_F_B,2B2,1B2,2I3,1I3,2W3,"
      "1W3\r\n");

  const std::string out =
      output_of_table("comms", "2",
                      "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD,0RESHARD\n"
                      "1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1REDUCE_GRAD,1RESHARD\n");
  EXPECT_NE(out.find("note: 4 actions of comms.csv (waits, UNSHARD, RESHARD) are ignored"), std::string::npos) << out;
}

// PyTorch's form of the lowered table is written on request, and runs here as well.
TEST_F(ScheduleTables, AreWrittenAsPyTorchLoadsThem) {
  const Flags flags{"--smoke", "--ranks", "2", "--microbatches", "4", "--balance", "layers"};
  const Flags explain = joined(flags, {"--explain", "--out", "plan"});
  ASSERT_EQ(run(kInterleavedProgram, explain).exit_code, 0);
  EXPECT_EQ(bytes("plan/schedule_lowered.csv").find("WAIT"), std::string::npos);
  ASSERT_EQ(run(kInterleavedProgram, joined(explain, {"--table-format", "pytorch"})).exit_code, 0);
  const std::string table = bytes("plan/schedule_lowered.csv");
  EXPECT_EQ(table, to_pytorch_text(lower(make_schedule("interleaved", 2, 4, 2))));
  const Outcome again = run(kInterleavedProgram, joined(flags, {"--schedule", "plan/schedule_lowered.csv"}));
  EXPECT_EQ(again.exit_code, 0) << again.err;
  for (const Flags& useless : {Flags{}, Flags{"--explain"}, Flags{"--out", "run"}}) {
    expect_refused(kInterleavedProgram, joined(joined(flags, useless), {"--table-format", "pytorch"}),
                   {"only --explain --out writes tables"});
  }
}

// Chapters 3 and 4 write their sends and receives by hand, and have them as a table too.
TEST_F(ScheduleTables, MakeTheCallsOfTheLoweredTableByHandToo) {
  make_data(60, 20);
  constexpr int kRanks = 3;
  const auto expect_calls = [&](const std::string& program, const std::string& name, const Flags& flags,
                                const Schedule& schedule, int tags_per_microbatch) {
    // Weights that grow without bound end the second step, and a run that fails leaves its record.
    const Outcome outcome =
        train(program, name, joined({"--ranks", "3", "--microbatches", "4", "--lr", "1e30"}, flags));
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      const auto wanted = calls_in(schedule, rank);
      EXPECT_EQ(calls_in(bytes(fmt::format("{}/flight_{}.jsonl", name, rank)), wanted.size(), tags_per_microbatch),
                wanted)
          << name << ", rank " << rank;
    }
  };
  const Schedule gpipe = make_schedule("gpipe", kRanks, 4);
  expect_calls(kCh03, "by-hand", {"--schedule", "by-hand"}, lower(gpipe, {.receives = 0}), 2);
  expect_calls(kCh03, "at-use", {"--schedule", "gpipe", "--receives", "at-use"}, lower(gpipe, {.receives = 0}),
               2 * kRanks);
  expect_calls(kCh04, "1f1b", {"--schedule", "by-hand", "--versions", "flush"},
               lower(make_schedule("1f1b", kRanks, 4), {.receives = 0}), 2);
}

// Chapter 5 writes the interleaved order by hand, and what it prints and runs is that table.
TEST_F(ScheduleTables, WriteTheInterleavedOrderOfTheLibraryByHand) {
  make_data(32, 8);
  int compared = 0;
  using Sizes = std::vector<std::pair<int, int>>;
  const Sizes all{{1, 2}, {1, 5}, {2, 1}, {2, 2}, {2, 6}, {3, 2}, {3, 4}, {4, 1}, {4, 3}, {6, 2}};
  for (const auto& [p, v] : unless_sanitized(all, {{1, 2}, {3, 2}})) {
    for (const int m : {1, p, 2 * p, 2 * p + 1, 3 * p + 2}) {
      for (const int group : {0, p + 1, 2 * p, m}) {
        Schedule library;
        try {
          library = make_schedule("interleaved", p, m, v, group);
        } catch (const UsageError&) {
          continue;  // not a legal group
        }
        const Outcome outcome =
            run(kInterleavedProgram, {"--data", "data", "--batch-size", "32", "--balance", "layers", "--explain",
                                      "--out", "plan", "--ranks", std::to_string(p), "--chunks", std::to_string(v),
                                      "--microbatches", std::to_string(m), "--group", std::to_string(group)});
        ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
        ASSERT_EQ(bytes("plan/schedule.csv"), to_text(library)) << p << " " << m << " " << v << " " << group;
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, unless_sanitized(90, 15));
}

TEST_F(ScheduleTables, MalformedSchedulesAreRefusedWithLineAndColumn) {
  write("typo.csv", "0F0,0F1,0B0,0B1\n1F0,1X0,1F1,1B1\n");
  write("circle.csv", "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n");
  write("short.csv", "0F0,0F1,0B0\n1F0,1B0,1F1,1B1\n");
  const auto flags = [](const std::string& file) {
    return Flags{"--smoke", "--microbatches", "2", "--schedule", file};
  };
  expect_refused(kInterleavedProgram, flags("typo.csv"), {"typo.csv", "line 2, column 5"});
  expect_refused(kInterleavedProgram, flags("circle.csv"), {"circle.csv", "wait"});
  expect_refused(kInterleavedProgram, flags("short.csv"), {"short.csv", "0B1"});
  write("good.csv", "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n");
  expect_refused(kInterleavedProgram, {"--smoke", "--microbatches", "4", "--schedule", "good.csv"},
                 {"2 ranks and 2 micro-batches", "--ranks 2 --microbatches 2"});
}

}  // namespace
}  // namespace stagecoach::test
