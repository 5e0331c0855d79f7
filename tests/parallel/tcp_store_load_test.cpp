// The store under load, from strangers and from clients that misbehave: what the ranks ask for is answered, and what
// the server holds stays small. tests/benchmarks/store_load_benchmark.cpp measures how long the ranks wait.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/comm/tcp/tcp_store.h"
#include "tests/parallel/served_store.h"
#include "tests/parallel/store_stranger.h"
#include "tests/support/errors.h"
#include "tests/support/sanitized.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::hello;
using test::Insider;
using test::kLong;
using test::request;
using test::Served;
using test::Stranger;
using Request = TcpStoreRequest;

constexpr TcpStoreLimits::Seconds kShortStall(0.05);
constexpr std::size_t kMiB = 1 << 20;

// Sanitizers keep what is freed, and only Linux tells how much memory is in use.
const bool kMemoryIsTheServers = !test::kSanitized && std::filesystem::exists("/proc/self/statm");

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t pages = 0;
  file >> pages >> pages;
  return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

std::size_t descriptors() {
  const std::filesystem::directory_iterator all("/dev/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

/// As many descriptors as this process may have, until the end of a test.
class DescriptorLimit {
 public:
  DescriptorLimit() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    set(before_.rlim_max);
  }
  ~DescriptorLimit() { set(before_.rlim_cur); }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

  void set(rlim_t most) const {
    const rlimit limit{std::min(most, before_.rlim_max), before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  rlim_t most() const { return before_.rlim_max; }

 private:
  rlimit before_{};
};

TEST(TcpStoreUnderLoad, ASlowReaderKeepsNobodyWaiting) {
  Served store;
  const std::string large = store.set_large();
  const Insider slow(store.server);
  constexpr int kAnswers = 40;  // no socket holds as many
  for (int i = 0; i < kAnswers; ++i) {
    ASSERT_TRUE(slow.say(request(Request::kGet, "large")));
  }
  store.expect_service();
  // They were kept for it: the server neither waited for it to read nor gave up.
  for (int i = 0; i < kAnswers; ++i) {
    ASSERT_TRUE(slow.hear() == "+" + large) << "answer " << i;
  }
  EXPECT_EQ(store.reports.count(), 0U);
}

TEST(TcpStoreUnderLoad, AReaderThatNeverReadsIsSentAway) {
  Served store({.stall = kShortStall});
  store.set_large();
  const Insider slow(store.server);
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(slow.say(request(Request::kGet, "large")));
  }
  EXPECT_TRUE(store.reports.have("has not finished a request or read an answer"));
  store.expect_service();
}

TEST(TcpStoreUnderLoad, ACounterThatNeverReadsIsSentAway) {
  Served store({.stall = kShortStall});
  const Insider slow(store.server);
  std::string many;
  for (int i = 0; i < 10'000; ++i) {
    many += request(Request::kAdd, "counted", "", 1);
  }
  int blocks = 0;
  while (blocks < 1000 && slow.say(many)) {  // until its answers fill the sockets
    ++blocks;
  }
  EXPECT_LT(blocks, 1000);
  EXPECT_TRUE(store.reports.have("has not finished a request or read an answer"));
  store.expect_service();
}

TEST(TcpStoreUnderLoad, ARequestThatNeverEndsIsSentAway) {
  Served store({.stall = kShortStall});
  const Insider slow(store.server);
  ASSERT_TRUE(slow.say(request(Request::kSet, "key", "value").substr(0, 26)));
  EXPECT_NE(slow.hear().find("it has not finished a request or read an answer for 0.05 s"), std::string::npos);
  EXPECT_TRUE(slow.is_sent_away());
  store.expect_service();
}

TEST(TcpStoreUnderLoad, AFloodWithoutTheTokenIsNotTakenIn) {
  Served store;
  const std::string much = hello("a wrong token") + std::string(16 * kMiB, 'x');
  const std::size_t before = resident_bytes();
  for (int i = 0; i < 8; ++i) {
    EXPECT_FALSE(Stranger(store.server).say(much)) << "the connection is ended before all is sent";
    store.expect_service(20);
  }
  if (kMemoryIsTheServers) {
    EXPECT_LT(resident_bytes(), before + 16 * kMiB);
  }
  EXPECT_TRUE(store.reports.have("its token differs from rank 0's"));
}

TEST(TcpStoreUnderLoad, AFloodOfThoseThatWereLetInIsBounded) {
  Served store;
  const std::string megabyte(TcpStore::kMaxBytes, 'x');
  const std::size_t before = resident_bytes();
  for (int client = 0; client < 8; ++client) {
    TcpStore flooding(store.server.address(), "rank 0", kLong);
    EXPECT_TRUE(fails_with<CommError>({"rank 0", "can store at most", "bytes"}, [&] {
      for (int i = 0; i < 64; ++i) {
        flooding.push("nobody takes it out", megabyte);
        flooding.add("sent", 1);
      }
    }));
    store.expect_service(20);
  }
  if (kMemoryIsTheServers) {
    EXPECT_LT(resident_bytes(), before + 64 * kMiB);
  }
  // What was taken in is taken out again, and makes room.
  EXPECT_EQ(store.rank.pop("nobody takes it out"), megabyte);
  store.rank.set("large", megabyte);
  EXPECT_EQ(store.rank.get("large"), megabyte);
}

TEST(TcpStoreUnderLoad, SmallThingsCountTooAndTheOthersHaveAReserve) {
  Served store({.bytes_per_client = kMiB, .bytes_in_all = kMiB});
  const std::size_t before = resident_bytes();
  for (const char* name : {"one", "another"}) {  // the second takes what the first has left
    TcpStore flooding(store.server.address(), "rank 0", kLong);
    EXPECT_TRUE(fails_with<CommError>({"can store at most 1048576 bytes"}, [&] {
      for (int i = 0; i < 10'000; ++i) {
        flooding.add(fmt::format("{}/{}", name, i), 1);
      }
    }));
    EXPECT_EQ(flooding.add(fmt::format("{}/0", name), 1), 2) << "a number that is there costs nothing more";
  }
  if (kMemoryIsTheServers) {
    EXPECT_LT(resident_bytes(), before + 2 * kMiB);
  }
  store.rank.set("of a rank", "has room");
  EXPECT_EQ(store.rank.get("of a rank"), "has room");
  store.expect_service();
}

TEST(TcpStoreUnderLoad, FiveThousandConnections) {
  const DescriptorLimit limit;
  const std::size_t count = std::min<std::size_t>(5000, limit.most() - 200);
  Served store;
  const std::size_t before = descriptors();
  std::vector<Stranger> strangers;
  std::thread comes([&] {
    for (std::size_t i = 0; i < count; ++i) {
      strangers.emplace_back(store.server);
    }
  });
  store.expect_service(1000);
  comes.join();
  EXPECT_EQ(strangers.size(), count);
  TcpStore late(store.server.address(), "rank 0", kLong);
  EXPECT_EQ(late.add("late", 1), 1) << "a rank that comes after them is let in";
  const TcpStoreLimits limits;
  EXPECT_LE(descriptors(), before + count + 2 + static_cast<std::size_t>(limits.handshakes) + 1);
  EXPECT_TRUE(strangers.front().is_sent_away());
  EXPECT_LE(store.reports.count(), 20U) << "they do not fill a log";
  store.expect_service();
}

TEST(TcpStoreUnderLoad, TheOldestOfThoseThatSayNothingMakesRoom) {
  Served store({.handshakes = 2});
  const Stranger first(store.server);
  const Stranger second(store.server);
  const Stranger third(store.server);
  EXPECT_TRUE(first.is_sent_away());
  ASSERT_TRUE(second.say(hello(store.server.address().token)));
  EXPECT_EQ(second.hear(), "+");
}

// Its session may not have run yet when others connect.
TEST(TcpStoreUnderLoad, OneThatHasSentItsTokenIsNotPushedOut) {
  Served store({.handshakes = 2});
  const std::string greeting = hello(store.server.address().token);
  std::vector<Stranger> clients;
  for (int i = 0; i < 32; ++i) {
    ASSERT_TRUE(clients.emplace_back(store.server).say(greeting));
  }
  for (std::size_t i = 0; i < clients.size(); ++i) {
    EXPECT_EQ(clients[i].hear(), "+") << "client " << i;
  }
  EXPECT_EQ(store.reports.count(), 0U);
}

TEST(TcpStoreUnderLoad, ThoseThatSayNothingAreSentAway) {
  Served store({.handshake = kShortStall});
  const Stranger silent(store.server);
  EXPECT_TRUE(silent.is_sent_away());
  const Stranger halting(store.server);
  EXPECT_TRUE(halting.say(hello(store.server.address().token).substr(0, 20)));
  EXPECT_TRUE(halting.is_sent_away());
  EXPECT_TRUE(store.reports.have("it has not sent its token within 0.05 s"));
}

TEST(TcpStoreUnderLoad, WithoutDescriptorsStrangersMakeRoom) {
  if (test::kSanitized) {
    GTEST_SKIP() << "to look at an object, the undefined-behaviour sanitizer opens a pipe";
  }
  Served store({.handshake = std::chrono::hours(1)});
  const Stranger silent(store.server);
  const Insider known(store.server);  // has come after it: that is with the server now
  const TcpSocket another(::socket(AF_INET, SOCK_STREAM, 0));
  const DescriptorLimit limit;
  limit.set(static_cast<rlim_t>(another.descriptor()) + 1);
  std::vector<TcpSocket> all;
  for (int copy = ::dup(another.descriptor()); copy >= 0; copy = ::dup(another.descriptor())) {
    all.emplace_back(copy);
  }
  // Now neither side can open a socket; this one is open.
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(store.server.address().at.port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::connect(another.descriptor(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  EXPECT_TRUE(silent.is_sent_away());
  const std::string bytes = hello(store.server.address().token);
  ASSERT_TRUE(another.send(bytes.data(), bytes.size()));
  TcpStoreAnswer welcome{};
  EXPECT_EQ(another.receive(&welcome, sizeof(welcome), test::soon()), TcpSocket::Outcome::done);
  store.expect_service();
}

}  // namespace
}  // namespace stagecoach
