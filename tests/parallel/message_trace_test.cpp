// What ranks send and wait for is in their trace, whoever sends it: a track per link direction, an arrow per message.

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/trace.h"
#include "parallel/comm/comm_thread.h"
#include "parallel/launch/launch.h"

namespace stagecoach {
namespace {

using Json = nlohmann::json;

/// The contents of a trace that all ranks of a world share.
struct Traced {
  std::map<std::string, std::vector<std::string>> links;  // the names of a track's messages
  std::multiset<std::string> waits;                       // "rank operation"
  std::vector<std::pair<int, int>> arrows;                // from one track to another
};

Traced trace_of(int ranks, const std::function<void(Rank&)>& work) {
  Trace trace;
  launch({.ranks = ranks, .clock = ClockKind::virtual_time, .network = Link{1e-3, 1e9}}, [&](Rank& rank) {
    trace.attach(rank.index, [&rank] { return rank.comm.clock().now(); });
    work(rank);
    Trace::detach();
  });
  const Json json = Json::parse(trace.to_json());
  Traced traced;
  std::map<int, std::string> names;
  std::map<int, int> begun;
  for (const Json& event : json["traceEvents"]) {
    if (event["name"] == "thread_name") {
      names[event["tid"]] = event["args"]["name"];
    }
  }
  for (const Json& event : json["traceEvents"]) {
    if (event["ph"] == "s") {
      begun[event["id"]] = event["tid"];
    } else if (event["ph"] == "X" && event["cat"] == "link") {
      traced.links[names.at(event["tid"])].push_back(event["name"]);
    } else if (event["ph"] == "X" && event["cat"] == "wait") {
      traced.waits.insert(names.at(event["tid"]) + " " + event["name"].get<std::string>());
    }
  }
  for (const Json& event : json["traceEvents"]) {
    if (event["ph"] == "f") {
      traced.arrows.emplace_back(begun.at(event["id"]), event["tid"]);
    }
  }
  return traced;
}

Tensor value(const Rank& rank) { return Tensor::full({8}, 1, DType::float32, rank.device); }

using Names = std::vector<std::string>;

TEST(MessageTrace, HasEverySendAndTheWaitsOfBothSides) {
  const Traced traced = trace_of(2, [](Rank& rank) {
    const Span span("forward", "action", [&] { return rank.index == 0 ? "0F0" : "1F0"; });
    if (rank.index == 0) {
      rank.comm.send(value(rank), 1, 4);
      rank.comm.receive({8}, DType::float32, 1, 4);
      rank.comm.send_number(1, 1, 5);  // controls the program, and is no message of the training
    } else {
      const PendingReceive receive = rank.comm.receive_async({8}, DType::float32, 0, 4);
      rank.comm.send_async(value(rank), 0, 4).wait();
      receive.wait();
      rank.comm.receive_number(0, 5);
    }
  });
  EXPECT_EQ(traced.links, (std::map<std::string, Names>{{"link 0 -> 1", {"0F0"}}, {"link 1 -> 0", {"1F0"}}}));
  EXPECT_EQ(traced.arrows, (std::vector<std::pair<int, int>>{{1, 2}, {2, 1}}));
  EXPECT_TRUE(traced.waits.contains("rank 0 send"));
  EXPECT_TRUE(traced.waits.contains("rank 0 receive"));
  EXPECT_TRUE(traced.waits.contains("rank 1 send"));
  EXPECT_TRUE(traced.waits.contains("rank 1 receive"));
}

// The ranks of a part are numbered anew there; its tracks are those of the world.
TEST(MessageTrace, NamesLinksByTheRanksOfTheWorld) {
  const Traced traced = trace_of(4, [](Rank& rank) {
    const auto part = rank.comm.split(rank.index % 2, rank.index);
    const Span span("exchange", "action");
    if (part->rank() == 0) {
      part->send(value(rank), 1, 0);
    } else {
      part->receive({8}, DType::float32, 0, 0);
    }
  });
  EXPECT_EQ(traced.links, (std::map<std::string, Names>{{"link 0 -> 2", {"exchange"}}, {"link 1 -> 3", {"exchange"}}}));
}

TEST(MessageTrace, ShowsTheLinksThatCollectivesTake) {
  const auto links_of = [](const std::function<void(Rank&, Tensor&)>& collective) {
    return trace_of(4,
                    [&](Rank& rank) {
                      Tensor tensor = value(rank);
                      const Span span("step", "action");
                      collective(rank, tensor);
                    })
        .links;
  };
  const Names once{"all_reduce"};
  EXPECT_EQ(links_of([](Rank& rank, Tensor& tensor) { rank.comm.all_reduce(tensor); }),
            (std::map<std::string, Names>{
                {"link 0 -> 1", once}, {"link 1 -> 2", once}, {"link 2 -> 3", once}, {"link 3 -> 0", once}}));
  const Names reduce{"reduce"};
  EXPECT_EQ(links_of([](Rank& rank, Tensor& tensor) { rank.comm.reduce(tensor, 2); }),
            (std::map<std::string, Names>{{"link 0 -> 2", reduce}, {"link 1 -> 2", reduce}, {"link 3 -> 2", reduce}}));
  const Names broadcast{"broadcast"};
  EXPECT_EQ(links_of([](Rank& rank, Tensor& tensor) { rank.comm.broadcast(tensor, 1); }),
            (std::map<std::string, Names>{
                {"link 1 -> 2", broadcast}, {"link 1 -> 3", broadcast}, {"link 2 -> 0", broadcast}}));
  // Ranks 0 and 2 exchange rows; the others have none.
  const Names all_to_all{"all_to_all"};
  EXPECT_EQ(links_of([](Rank& rank, Tensor& tensor) {
              RowCounts rows(4);
              rows[static_cast<std::size_t>(rank.index % 2 == 0 ? 2 - rank.index : rank.index)] = tensor.size(0);
              rank.comm.all_to_all(tensor, rows, rows);
            }),
            (std::map<std::string, Names>{{"link 0 -> 2", all_to_all}, {"link 2 -> 0", all_to_all}}));
  EXPECT_TRUE(links_of([](Rank& rank, Tensor&) { rank.comm.barrier(); }).empty());
}

TEST(MessageTrace, ShowsTheBytesOfCollectives) {
  constexpr int kRanks = 4;
  Trace trace;
  launch({.ranks = kRanks}, [&](Rank& rank) {
    trace.attach(rank.index);
    {
      Tensor tensor = Tensor::zeros({24}, DType::float32, rank.device);
      const Span span("step", "action");
      rank.comm.all_reduce(tensor);
      rank.comm.broadcast(tensor, 0);
      rank.comm.all_gather(tensor);
      rank.comm.reduce_scatter(tensor);
      rank.comm.all_to_all(tensor, RowCounts(kRanks, 6), RowCounts(kRanks, 6));
    }
    Trace::detach();
  });
  using BytesByName = std::map<std::string, std::set<int>>;
  BytesByName spans;
  BytesByName links;
  const Json json = Json::parse(trace.to_json());
  for (const Json& event : json["traceEvents"]) {
    if (event.contains("args") && event["args"].contains("bytes")) {
      (event["cat"] == "link" ? links : spans)[event["name"]].insert(event["args"]["bytes"].get<int>());
    }
  }
  EXPECT_EQ(spans, (BytesByName{{"all_gather", {96}},
                                {"all_reduce", {96}},
                                {"all_to_all", {96}},
                                {"broadcast", {96}},
                                {"reduce_scatter", {96}}}));
  EXPECT_EQ(links, (BytesByName{{"all_gather", {288}},
                                {"all_reduce", {144}},
                                {"all_to_all", {24}},
                                {"broadcast", {96}},
                                {"reduce_scatter", {72}}}));
}

// Its jobs are on a track of their own, beside the rank's.
TEST(MessageTrace, ShowsWhatTheSecondThreadSends) {
  const Traced traced = trace_of(2, [](Rank& rank) {
    CommThread comm_thread(rank.comm);
    comm_thread
        .submit("reduce bucket",
                [&](Communicator& comm) {
                  Tensor tensor = value(rank);
                  const Span span("step", "action");
                  comm.all_reduce(tensor);
                })
        .wait();
  });
  EXPECT_EQ(traced.links,
            (std::map<std::string, Names>{{"link 0 -> 1", {"all_reduce"}}, {"link 1 -> 0", {"all_reduce"}}}));
  EXPECT_EQ(traced.arrows, (std::vector<std::pair<int, int>>{{1001, 1002}, {1002, 1001}}));
  EXPECT_TRUE(traced.waits.contains("beside rank 0 all_reduce"));
}

}  // namespace
}  // namespace stagecoach
