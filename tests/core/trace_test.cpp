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
  EXPECT_GE(event.seconds, 0.002);
  EXPECT_GE(event.start, before);
  EXPECT_LE(event.start + event.seconds, after);
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
    EXPECT_LE(events[inner].start + events[inner].seconds, events[2].start + events[2].seconds);
  }
  EXPECT_LE(events[0].start + events[0].seconds, events[1].start);
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
  trace_.add(Trace::Event{"conv2d", "forward", 0, 0.001, 0.0000025});
  trace_.add(Trace::Event{"forward", "action", 12, 1.5, 0, "1F3"});
  trace_.add(Trace::MessageEnd{"a/0/1/7", true, 0, 0.001, 0, "0SEND_F3"});
  trace_.add(Trace::MessageEnd{"a/0/1/7", false, 12, 1.5, 0.5});
  EXPECT_EQ(
      trace_.to_json(),
      "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
      "{\"name\":\"conv2d\",\"cat\":\"forward\",\"ph\":\"X\",\"pid\":0,\"tid\":0,\"ts\":1000.000,\"dur\":2.500},\n"
      "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":0,\"args\":{\"name\":\"rank 0\"}},\n"
      "{\"name\":\"1F3\",\"cat\":\"action\",\"ph\":\"X\",\"pid\":0,\"tid\":12,\"ts\":1500000.000,\"dur\":0.000,"
      "\"args\":{\"operation\":\"forward\"}},\n"
      "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":12,\"args\":{\"name\":\"rank 12\"}},\n"
      "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":1000012,\"args\":{\"name\":\"link 0 -> 12\"}},\n"
      "{\"name\":\"0SEND_F3\",\"cat\":\"link\",\"ph\":\"X\",\"pid\":0,\"tid\":1000012,\"ts\":1000.000,"
      "\"dur\":499000.000},\n"
      "{\"name\":\"message\",\"cat\":\"message\",\"ph\":\"s\",\"id\":0,\"pid\":0,\"tid\":0,\"ts\":1000.000},\n"
      "{\"name\":\"message\",\"cat\":\"message\",\"ph\":\"f\",\"bp\":\"e\",\"id\":0,\"pid\":0,\"tid\":12,\"ts\":"
      "1500000.000}\n"
      "]}\n");
}

TEST_F(TraceTest, MessagesOfOneLinkFollowEachOther) {
  for (const int i : {0, 1}) {  // both are sent at 1 s; they arrive after 2 s and 3 s
    const std::string channel = std::to_string(i);
    trace_.add(Trace::MessageEnd{channel, true, 0, 1, 0, "0SEND_F" + channel});
    trace_.add(Trace::MessageEnd{channel, false, 1, 9, 3.0 - i});
  }
  trace_.add(Trace::MessageEnd{"c", true, 0, 1, 0, "0SEND_F2"});  // not used: neither an arrow nor a span
  const std::string json = trace_.messages_json();
  EXPECT_NE(json.find("\"0SEND_F1\",\"cat\":\"link\",\"ph\":\"X\",\"pid\":0,\"tid\":1000001,\"ts\":1000000.000,"
                      "\"dur\":1000000.000}"),
            std::string::npos)
      << json;
  EXPECT_NE(json.find("\"ts\":2000000.000,\"dur\":1000000.000}"), std::string::npos) << json;
  EXPECT_EQ(json.find("SEND_F2"), std::string::npos);
  EXPECT_EQ(json.find("\"id\":2,"), std::string::npos);
}

// So traces of processes are brought together.
TEST_F(TraceTest, EndsOfMessagesSurviveAsText) {
  trace_.add(Trace::MessageEnd{"a/0/1/7", true, 0, 0.1, 0, "0SEND_F3"});
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
  for (const char* part : {"\"to be used\",\"cat\":\"link\",\"ph\":\"X\",\"pid\":0,\"tid\":1000001,\"ts\":1000000.000,"
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
  EXPECT_NE(json.find("\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"tid\":0,\"args\":{\"name\":\"predicted\"}"),
            std::string::npos)
      << json;
  EXPECT_NE(json.find("\"0F0\",\"cat\":\"action\",\"ph\":\"X\",\"pid\":1,"), std::string::npos);
  EXPECT_NE(json.find("\"cat\":\"predicted message\",\"ph\":\"s\""), std::string::npos)
      << "its arrows do not end in the run";
}

TEST_F(TraceTest, JsonOfNoEventsIsAnEmptyList) {
  EXPECT_EQ(trace_.to_json(), "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n]}\n");
}

}  // namespace
}  // namespace stagecoach
