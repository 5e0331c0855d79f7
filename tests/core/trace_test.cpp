// Spans and the trace that collects them.

#include "core/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "core/autograd/backward.h"
#include "core/ops.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

/// Leaves this thread without a trace, whatever a test did.
class TraceTest : public ::testing::Test {
 protected:
  ~TraceTest() override { Trace::detach(); }

  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const Trace::Event& event : trace_.events()) {
      all.emplace_back(event.name);
    }
    return all;
  }
  Trace trace_;
};
using Names = std::vector<std::string>;

TEST_F(TraceTest, NothingIsRecordedWhileDetached) {
  { const Span span("before", "test"); }
  trace_.attach(0);
  { const Span span("within", "test"); }
  Trace::detach();
  { const Span span("after", "test"); }
  EXPECT_EQ(names(), (Names{"within"}));
}

TEST_F(TraceTest, ASpanHasItsNameCategoryTrackAndTime) {
  trace_.attach(3);
  const double before = trace_.now();
  {
    const Span span("work", "forward");
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  const double after = trace_.now();
  ASSERT_EQ(trace_.events().size(), 1U);
  const Trace::Event event = trace_.events()[0];
  EXPECT_STREQ(event.name, "work");
  EXPECT_STREQ(event.category, "forward");
  EXPECT_EQ(event.track, 3);
  EXPECT_GE(event.seconds(), 0.002);
  EXPECT_GE(event.start, before);
  EXPECT_LE(event.end, after);
}

// An inner span is within its outer one, as the viewer needs it, and ends first.
TEST_F(TraceTest, SpansNest) {
  trace_.attach(0);
  {
    const Span outer("outer", "test");
    { const Span first("first", "test"); }
    { const Span second("second", "test"); }
  }
  EXPECT_EQ(names(), (Names{"first", "second", "outer"}));
  const auto events = trace_.events();
  for (const std::size_t inner : {0U, 1U}) {
    EXPECT_GE(events[inner].start, events[2].start);
    EXPECT_LE(events[inner].end, events[2].end);
  }
  EXPECT_LE(events[0].end, events[1].start);
}

TEST_F(TraceTest, ASpanOpenWhenTheTraceIsDetachedIsNotRecorded) {
  trace_.attach(0);
  {
    const Span span("cut", "test");
    Trace::detach();
  }
  EXPECT_TRUE(trace_.events().empty());
}

TEST_F(TraceTest, ASpanOpenWhenTheTraceIsAttachedIsNotRecorded) {
  {
    const Span span("early", "test");
    trace_.attach(0);
  }
  EXPECT_TRUE(trace_.events().empty());
}

TEST_F(TraceTest, ASpanOpenWhenAnotherTraceIsAttachedIsInNeither) {
  Trace other;
  trace_.attach(0);
  {
    const Span span("between", "test");
    other.attach(0);
    { const Span inner("inner", "test"); }
  }
  EXPECT_TRUE(trace_.events().empty());
  ASSERT_EQ(other.events().size(), 1U);
  EXPECT_STREQ(other.events()[0].name, "inner");
}

TEST_F(TraceTest, EachThreadHasATrackOfItsOwn) {
  constexpr int kRanks = 4;
  constexpr int kSpans = 100;
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back([this, rank] {
        { const Span unseen("unseen", "test"); }
        trace_.attach(rank);
        for (int i = 0; i < kSpans; ++i) {
          const Span span("step", "test");
        }
        Trace::detach();
      });
    }
  }
  const auto events = trace_.events();
  EXPECT_EQ(events.size(), static_cast<std::size_t>(kRanks * kSpans));
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(std::count_if(events.begin(), events.end(), [=](const auto& event) { return event.track == rank; }),
              kSpans);
  }
}

TEST_F(TraceTest, OperationsAreSpans) {
  const Tensor x = test::random_leaf({2, 3}, "x");
  const Tensor w = test::random_leaf({4, 3}, "w");
  trace_.attach(0);
  const Tensor y = relu(linear(x, w));
  backward(y, test::random_tensor({2, 4}, "upstream"));
  Trace::detach();
  Names labels;
  for (const Trace::Event& event : trace_.events()) {
    labels.push_back(std::string(event.category) + " " + event.name);
  }
  EXPECT_EQ(labels, (Names{"forward linear", "forward relu", "backward relu", "backward linear"}));
}

TEST_F(TraceTest, JsonIsChromesFormat) {
  trace_.add(Trace::Event{"conv2d", "forward", 0, 0.001, 0.0010025});
  trace_.add(Trace::Event{"forward", "action", 12, 1.5, 1.5, "1F3", R"("more":1)"});
  trace_.add(Trace::MessageEnd{"a/0/1/7", true, 0, 0.001, 0, "0SEND_F3", 96});
  trace_.add(Trace::MessageEnd{"a/0/1/7", false, 12, 1.5, 0.5});
  EXPECT_EQ(trace_.to_json(), R"({"displayTimeUnit":"ms","traceEvents":[
{"name":"process_name","ph":"M","pid":1,"tid":1,"args":{"name":"measured"}},
{"name":"process_sort_index","ph":"M","pid":1,"tid":1,"args":{"sort_index":1}},
{"name":"thread_name","ph":"M","pid":1,"tid":1,"args":{"name":"rank 0"}},
{"name":"thread_sort_index","ph":"M","pid":1,"tid":1,"args":{"sort_index":0}},
{"name":"conv2d","cat":"forward","ph":"X","pid":1,"tid":1,"ts":1000.000,"dur":2.500},
{"name":"thread_name","ph":"M","pid":1,"tid":13,"args":{"name":"rank 12"}},
{"name":"thread_sort_index","ph":"M","pid":1,"tid":13,"args":{"sort_index":120}},
{"name":"1F3","cat":"action","ph":"X","pid":1,"tid":13,"ts":1500000.000,"dur":0.000,"args":{"operation":"forward","more":1}},
{"name":"thread_name","ph":"M","pid":1,"tid":1000012,"args":{"name":"link 0 -> 12"}},
{"name":"thread_sort_index","ph":"M","pid":1,"tid":1000012,"args":{"sort_index":1000012}},
{"name":"0SEND_F3","cat":"link","ph":"X","pid":1,"tid":1000012,"ts":1000.000,"dur":499000.000,"args":{"bytes":96}},
{"name":"message","cat":"message","ph":"s","id":0,"pid":1,"tid":1,"ts":1000.000},
{"name":"message","cat":"message","ph":"f","bp":"e","id":0,"pid":1,"tid":13,"ts":1500000.000}
]}
)");
}

TEST_F(TraceTest, MessagesOfOneLinkFollowEachOther) {
  for (const int i : {0, 1}) {  // both are sent at 1 s; they arrive after 2 s and 3 s
    const std::string channel = std::to_string(i);
    trace_.add(Trace::MessageEnd{channel, true, 0, 1, 0, "0SEND_F" + channel});
    trace_.add(Trace::MessageEnd{channel, false, 1, 9, 3.0 - i});
  }
  trace_.add(Trace::MessageEnd{"c", true, 0, 1, 0, "0SEND_F2"});  // not used: neither an arrow nor a span
  const std::string json = trace_.messages_json();
  EXPECT_NE(json.find("\"0SEND_F1\",\"cat\":\"link\",\"ph\":\"X\",\"pid\":1,\"tid\":1000001,\"ts\":1000000.000,"
                      "\"dur\":1000000.000}"),
            std::string::npos)
      << json;
  EXPECT_NE(json.find("\"ts\":2000000.000,\"dur\":1000000.000}"), std::string::npos) << json;
  EXPECT_EQ(json.find("SEND_F2"), std::string::npos);
  EXPECT_EQ(json.find("\"id\":2,"), std::string::npos);
}

// So traces of processes are brought together.
TEST_F(TraceTest, EndsOfMessagesSurviveAsText) {
  trace_.add(Trace::MessageEnd{"a/0/1/7", true, 0, 0.1, 0, "0SEND_F3", 96});
  trace_.add(Trace::MessageEnd{"a/0/1/7", false, 2, 1.0 / 3, 0.25});
  Trace other;
  other.add_message_ends(trace_.message_ends_text());
  EXPECT_EQ(other.messages_json(), trace_.messages_json());
}

TEST_F(TraceTest, MessagesOfOneChannelAreUsedInTheOrderOfTheSends) {
  for (const double arrival : {2, 3}) {
    trace_.add(Trace::MessageEnd{"a", true, 0, arrival - 1, 0, "to be used"});
    trace_.add(Trace::MessageEnd{"a", false, 1, arrival, arrival});
  }
  trace_.add(Trace::MessageEnd{"a", true, 0, 4, 0, "not used"});
  const std::string json = trace_.messages_json();
  for (const char* part : {"\"to be used\",\"cat\":\"link\",\"ph\":\"X\",\"pid\":1,\"tid\":1000001,\"ts\":1000000.000,"
                           "\"dur\":1000000.000}",
                           "\"ts\":2000000.000,\"dur\":1000000.000}", "\"id\":0,", "\"id\":1,"}) {
    EXPECT_NE(json.find(part), std::string::npos) << part << " is not in: " << json;
  }
  EXPECT_EQ(json.find("not used"), std::string::npos);
  EXPECT_EQ(json.find("\"id\":2,"), std::string::npos);
}

TEST_F(TraceTest, AMessageHasTheNameOfTheSpanThatSendsIt) {
  record_send("nobody records");
  trace_.attach(0);
  record_send("a");
  {
    const Span outer("forward", "action", [] { return std::string("0F1"); });
    { const Span inner("relu", "forward"); }
    record_send("b");
    const Span inner("scatter images", "communication");
    record_send("c");
  }
  trace_.attach(1);
  for (const char* channel : {"a", "b", "c", "nobody records"}) {
    record_use(channel, 0);
  }
  Trace::detach();
  const std::string json = trace_.messages_json();
  for (const char* name : {"\"0F1\",\"cat\":\"link\"", "\"scatter images\",\"cat\":\"link\""}) {
    EXPECT_NE(json.find(name), std::string::npos) << name << " is not in: " << json;
  }
  EXPECT_EQ(json.find("\"id\":2,"), std::string::npos) << "one outside of any span is not shown";
}

TEST_F(TraceTest, APredictionIsAProcessOfItsOwn) {
  Trace predicted(Trace::Process::predicted);
  predicted.add(Trace::Event{"forward", "action", 0, 0, 1, "0F0"});
  predicted.add(Trace::MessageEnd{"a/0/1/7", true, 0, 1, 0, "0SEND_F0"});
  predicted.add(Trace::MessageEnd{"a/0/1/7", false, 1, 2, 2});
  const std::string json = predicted.to_json();
  EXPECT_NE(json.find("\"name\":\"process_name\",\"ph\":\"M\",\"pid\":2,\"tid\":1,\"args\":{\"name\":\"predicted\"}"),
            std::string::npos)
      << json;
  EXPECT_NE(json.find("\"0F0\",\"cat\":\"action\",\"ph\":\"X\",\"pid\":2,"), std::string::npos);
  EXPECT_NE(json.find("\"cat\":\"predicted message\",\"ph\":\"s\""), std::string::npos)
      << "its arrows do not end in the run";
}

// Begins and ends are on one grid, and an outer span comes first, though it is recorded last.
TEST_F(TraceTest, SpansThatTouchDoNotCross) {
  constexpr double kTick = 1.25e-7;
  const double middle = 0.1234561 + 0.4 * kTick;
  trace_.add(Trace::Event{"first", "test", 0, 0.1234561, middle});
  trace_.add(Trace::Event{"second", "test", 0, middle, 0.1234568});
  trace_.add(Trace::Event{"outer", "test", 0, 0.1234561, 0.1234568});
  const std::string json = trace_.events_json();
  const auto at = [&](const std::string& line) { return json.find(line); };
  const std::size_t outer = at(R"("outer","cat":"test","ph":"X","pid":1,"tid":1,"ts":123456.125,"dur":0.625})");
  const std::size_t second = at(R"("second","cat":"test","ph":"X","pid":1,"tid":1,"ts":123456.125,"dur":0.625})");
  const std::size_t first = at(R"("first","cat":"test","ph":"X","pid":1,"tid":1,"ts":123456.125,"dur":0.000})");
  ASSERT_NE(first, std::string::npos) << json;
  ASSERT_NE(second, std::string::npos) << json;
  EXPECT_LT(outer, second);
}

TEST_F(TraceTest, ThreadsBesideARankHaveTracksOfTheirOwn) {
  const int workers[2] = {};
  for (const int again : {0, 1}) {
    EXPECT_EQ(trace_.track_beside(3, &workers[0]), 3 + Trace::kBeside) << again;
    EXPECT_EQ(trace_.track_beside(3, &workers[1]), 3 + 2 * Trace::kBeside) << again;
    EXPECT_EQ(trace_.track_beside(4, &workers[1]), 4 + Trace::kBeside) << again;
  }
  trace_.add(Trace::Event{"sum", "communication", 3 + 2 * Trace::kBeside, 0, 1});
  EXPECT_NE(trace_.events_json().find("beside rank 3 (2)"), std::string::npos);
}

TEST_F(TraceTest, ManyThreadsBesideARankTakeNoTrackOfADevice) {
  std::vector<char> workers(499);
  for (std::size_t i = 0; i + 1 < workers.size(); ++i) {
    const int track = trace_.track_beside(127, &workers[i]);
    ASSERT_LT(track, Trace::kStreams) << i;
    ASSERT_EQ(track % Trace::kBeside, 127) << i;
  }
  EXPECT_THROW(trace_.track_beside(127, &workers.back()), Error);
}

TEST_F(TraceTest, MemoryIsCountedAtTheBordersOfOutermostSpans) {
  trace_.count_memory("memory of rank 2", Device{});
  trace_.attach(2);
  Tensor kept;
  {
    const Span outer("forward", "action");
    const Span inner("relu", "forward");
    kept = Tensor::full({1024}, 1, DType::float32);
  }
  {
    const Span again("backward", "action");  // nothing has changed
  }
  Trace::detach();
  const std::string json = trace_.events_json();
  std::vector<long> bytes;
  for (std::size_t found = 0; (found = json.find(R"({"bytes":)", found)) != std::string::npos; ++found) {
    bytes.push_back(std::stol(json.substr(found + 9)));
  }
  ASSERT_EQ(bytes.size(), 2U) << json;
  EXPECT_EQ(bytes[1] - bytes[0], 4096);
  EXPECT_NE(json.find(R"({"name":"memory of rank 2","ph":"C","pid":1,)"), std::string::npos);
}

TEST_F(TraceTest, JsonOfNoEventsHasTheNameOfTheProcess) {
  EXPECT_NE(trace_.to_json().find(R"("traceEvents":[
{"name":"process_name")"),
            std::string::npos);
}

}  // namespace
}  // namespace stagecoach
