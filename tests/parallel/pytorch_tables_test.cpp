// The tables that torch.distributed.pipelining makes, which tests/golden/export_pytorch_schedules.py stored: each is
// legal, has every action that it should have, and trains what one device trains, bit for bit.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <ostream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/parse.h"
#include "parallel/schedule/check.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/schedule_kinds.h"
#include "parallel/schedule/text.h"
#include "tests/parallel/pipeline_training.h"
#include "tests/support/files.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;
using test::expect_equal;
using test::in_pipeline;
using test::on_one_device;
using test::Task;
using test::uneven_model;

const fs::path kFolder = STAGECOACH_TABLES_DIR;
const std::vector<std::string> kKinds = {"gpipe",          "1f1b", "interleaved", "looped-bfs",
                                         "interleaved-zb", "zbv",  "dualpipev"};
constexpr int kRankCounts[] = {2, 4, 8};
const Task kTableTask{uneven_model, {6}, 4, 2};

/// One of the files, "interleaved-p4-m8-v2-comms.csv".
struct Table {
  std::string kind;
  int ranks;
  bool comms;  ///< whether communication is listed, too

  int microbatches() const { return 2 * ranks; }
  int chunks() const { return kind == "gpipe" || kind == "1f1b" ? 1 : 2; }
  int stages() const { return ranks * chunks(); }
  bool is_v() const { return kind == "zbv" || kind == "dualpipev"; }
  bool splits_backward() const { return is_v() || kind == "interleaved-zb"; }
  int rank_of(int stage) const { return is_v() && stage >= ranks ? stages() - 1 - stage : stage % ranks; }
  std::string file() const {
    return fmt::format("{}-p{}-m{}{}{}.csv", kind, ranks, microbatches(), chunks() == 2 ? "-v2" : "",
                       comms ? "-comms" : "");
  }
  Schedule read() const { return schedule_from_text(test::read_bytes(kFolder / file()), file()); }
};
void PrintTo(const Table& table, std::ostream* out) { *out << table.file(); }

std::vector<Table> tables() {
  std::vector<Table> all;
  for (const std::string& kind : kKinds) {
    for (const int ranks : kRankCounts) {
      for (const bool comms : {false, true}) {
        all.push_back({kind, ranks, comms});
      }
    }
  }
  return all;
}

std::string name_of(const ::testing::TestParamInfo<Table>& info) {
  std::string name = fs::path(info.param.file()).stem().string();
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

bool computes(const Action& action) { return is_computation(action.operation); }

/// What each rank computes, in its order.
std::vector<std::vector<Action>> computations(const Schedule& schedule) {
  std::vector<std::vector<Action>> ranks(schedule.ranks.size());
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    std::copy_if(schedule.ranks[rank].begin(), schedule.ranks[rank].end(), std::back_inserter(ranks[rank]), computes);
  }
  return ranks;
}

/// How many actions there are of each operation, by the operation's name: "F", "SEND_F".
std::map<std::string, int> counts(const Schedule& schedule) {
  std::map<std::string, int> all;
  for (const auto& actions : schedule.ranks) {
    for (const Action& action : actions) {
      const std::string text = to_string(action);
      const std::size_t begin = text.find_first_not_of("0123456789");
      ++all[text.substr(begin, text.find_last_not_of("0123456789") + 1 - begin)];
    }
  }
  return all;
}

// A file that a newer script writes under another name would otherwise be tested by no one.
TEST(PyTorchTables, AreTheFilesInTheFolder) {
  std::vector<std::string> expected;
  for (const std::string& kind : kKinds) {
    for (const int ranks : kRankCounts) {
      for (const bool comms : {false, true}) {
        expected.push_back(Table{kind, ranks, comms}.file());
      }
    }
  }
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(kFolder)) {
    if (entry.is_regular_file()) {
      found.push_back(entry.path().filename().string());
    }
  }
  std::sort(expected.begin(), expected.end());
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, expected);
}

class EveryTable : public ::testing::TestWithParam<Table> {};
INSTANTIATE_TEST_SUITE_P(PyTorch, EveryTable, ::testing::ValuesIn(tables()), name_of);

TEST_P(EveryTable, IsLegalAndComplete) {
  const Table& table = GetParam();
  const Schedule schedule = table.read();
  EXPECT_EQ(check(schedule), std::vector<std::string>{});
  ASSERT_EQ(schedule.rank_count(), table.ranks);
  ASSERT_EQ(schedule.stage_count(), table.stages());
  ASSERT_EQ(schedule.microbatches, table.microbatches());
  int borders = 0;  // between stages on different ranks: over the others no message goes
  for (int stage = 0; stage < schedule.stage_count(); ++stage) {
    EXPECT_EQ(schedule.rank_of(stage, 0), table.rank_of(stage)) << "stage " << stage;
    borders += stage > 0 && table.rank_of(stage - 1) != table.rank_of(stage) ? 1 : 0;
  }
  auto count = counts(schedule);
  EXPECT_EQ(count["F"], table.stages() * table.microbatches());
  EXPECT_EQ(count["B"] + count["I"], table.stages() * table.microbatches());
  EXPECT_EQ(count["I"], count["W"]);
  EXPECT_EQ(count["I"] > 0, table.splits_backward());
  for (const char* message : {"SEND_F", "RECV_F", "SEND_B", "RECV_B"}) {
    EXPECT_EQ(count[message], table.comms ? borders * table.microbatches() : 0) << message;
  }
  EXPECT_EQ(count["REDUCE_GRAD"], table.comms ? table.stages() : 0);
  EXPECT_EQ(computations(schedule), computations(Table{table.kind, table.ranks, false}.read()));
  EXPECT_EQ(schedule_from_text(to_text(schedule), "what was written"), schedule);
}

TEST_P(EveryTable, TrainsWhatOneDeviceTrains) {
  expect_equal(on_one_device(kTableTask, GetParam().microbatches()), in_pipeline(kTableTask, GetParam().read()));
}

TEST(PyTorchTables, AreOursWhereTheScheduleIsTheSame) {
  for (const int p : kRankCounts) {
    for (const char* kind : {"gpipe", "1f1b", "interleaved"}) {
      const Table table{kind, p, false};
      EXPECT_EQ(table.read(), make_schedule(kind, p, table.microbatches(), table.chunks())) << table.file();
    }
  }
}

/// Expects one wait after each send and each reduction of a rank, and no more than one reduction at a time.
void expect_waits(const std::vector<std::string>& cells) {
  std::set<std::string> pending;
  int reductions = 0;  // pending at once: PyTorch allows one
  for (const std::string& cell : cells) {
    const std::size_t begin = cell.find_first_not_of("0123456789");
    const std::string name = cell.substr(begin);
    if (name.starts_with("WAIT_")) {
      EXPECT_EQ(pending.erase(cell.substr(0, begin) + name.substr(5)), 1U) << cell << " waits for nothing";
      reductions -= name == "WAIT_REDUCE_GRAD" ? 1 : 0;
    } else if (name.starts_with("SEND_") || name == "REDUCE_GRAD") {
      EXPECT_TRUE(pending.insert(cell).second) << cell << " is listed twice";
      reductions += name == "REDUCE_GRAD" ? 1 : 0;
    }
    EXPECT_LE(reductions, 1) << cell;
  }
  EXPECT_EQ(pending, std::set<std::string>{}) << "these have no wait";
}

// PyTorch's `_load_csv(format="compute_comms")` refuses a table in which a send or a reduction has no wait.
TEST(PyTorchTables, AreWrittenWithTheWaitsThatPyTorchExpects) {
  for (const std::string& kind : schedule_names()) {
    for (const int p : kRankCounts) {
      const Schedule schedule = with_reductions(lower(make_schedule(kind, p, 2 * p)));
      const std::string text = to_pytorch_text(schedule);
      int rank = 0;
      for (const std::string_view line : split_text(std::string_view(text).substr(0, text.size() - 1), '\n')) {
        SCOPED_TRACE(fmt::format("{}, rank {} of {}", kind, rank++, p));
        std::vector<std::string> cells;
        for (const std::string_view cell : split_text(line, ',')) {
          cells.emplace_back(cell);
        }
        expect_waits(cells);
      }
      EXPECT_EQ(rank, p) << kind;
      int left_out = 0;
      EXPECT_EQ(schedule_from_text(text, kind, &left_out), schedule) << kind;
      auto count = counts(schedule);
      EXPECT_EQ(count["REDUCE_GRAD"], schedule.stage_count()) << kind;
      EXPECT_EQ(left_out, count["SEND_F"] + count["SEND_B"] + count["REDUCE_GRAD"]) << kind;
    }
  }
}

// The wait for an activation comes after the gradient that it led to: by then the receiver has used it.
TEST(PyTorchTables, WaitForAnActivationAfterItsGradient) {
  EXPECT_EQ(to_pytorch_text(lower(make_schedule("1f1b", 2, 2), {.receives = 0})),
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0WAIT_SEND_F0,0RECV_B1,0B1,0WAIT_SEND_F1,0REDUCE_GRAD,"
            "0WAIT_REDUCE_GRAD\n"
            "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,1WAIT_SEND_B0,"
            "1WAIT_SEND_B1\n");
  EXPECT_THROW(to_pytorch_text(make_schedule("1f1b", 2, 2)), Error) << "not lowered";
}

// Schedule1F1B numbers the forwards of its last rank from 1. PyTorch's own validation refuses it, too.
TEST(PyTorchTables, Of1F1BAsListedAreRefused) {
  const Schedule listed = schedule_from_text(test::read_bytes(kFolder / "refused/1f1b-p2-m4.csv"), "1f1b");
  const auto problems = check(listed);
  EXPECT_NE(std::find(problems.begin(), problems.end(), "1F0 is missing"), problems.end());
}

}  // namespace
}  // namespace stagecoach
