// The bootstrap and those that do not belong to the run, or misbehave: the ranks' messages are passed on, and what the
// server holds stays small.

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/comm/tcp/control_channel.h"
#include "tests/support/errors.h"
#include "tests/support/sanitized.h"

namespace stagecoach {
namespace {

using test::fails_with;

constexpr std::chrono::seconds kLong(60);
constexpr std::chrono::duration<double> kShortPatience(0.05);
constexpr std::size_t kMebibyte = 1 << 20;
constexpr const char* kToken = "a token of tests";

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

/// What the server says of those that it sends away.
class Reports {
 public:
  TcpAdmission::Report to() {
    return [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(line);
      came_.notify_all();
    };
  }
  /// Waits for one that holds `text`.
  bool have(const std::string& text) {
    std::unique_lock lock(mutex_);
    return came_.wait_for(lock, kLong, [&] {
      return std::any_of(lines_.begin(), lines_.end(),
                         [&](const std::string& line) { return line.find(text) != std::string::npos; });
    });
  }
  std::size_t count() {
    const std::lock_guard lock(mutex_);
    return lines_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<std::string> lines_;
};

/// A bootstrap with two of its four ranks.
struct Served {
  explicit Served(const TcpAdmission::Limits& limits = {})
      : server({{"127.0.0.1", 0}, kToken}, 4, limits, reports.to()),
        one(server.address(), "test", 0, 4, kLong),
        other(server.address(), "test", 1, 4, kLong) {}

  /// Messages go back and forth between the ranks.
  void expect_service(int messages = 200) {
    for (int i = 0; i < messages; ++i) {
      const std::string text = std::to_string(i);
      one.post(1, "there", text);
      ASSERT_EQ(ControlWait(other, {}, [] { return "there"; }).take("there"), text);
      other.post(0, "back", text);
      ASSERT_EQ(ControlWait(one, {}, [] { return "back"; }).take("back"), text);
    }
  }

  Reports reports;
  BootstrapServer server;
  ControlChannel one;
  ControlChannel other;
};

TcpDeadline soon() { return std::chrono::steady_clock::now() + kLong; }

std::string hello(const std::string& token, int rank = 2) {
  const TcpHello bytes(token, "test", rank, 4);
  return {reinterpret_cast<const char*>(&bytes), sizeof(bytes)};
}

/// A connection of bytes, for what a ControlChannel never does.
class RawClient {
 public:
  explicit RawClient(const BootstrapServer& server) : socket_(connect_to(server.address().at, soon())) {}

  /// Returns false if the connection is lost.
  bool say(const std::string& bytes) const { return socket_.send(bytes.data(), bytes.size()); }
  /// Returns whether the server has let it in.
  bool is_accepted() const {
    std::uint32_t reason_bytes = 1;
    return socket_.receive(&reason_bytes, sizeof(reason_bytes), soon()) == TcpSocket::Outcome::done &&
           reason_bytes == 0;
  }
  /// Returns whether the server ends the connection without another byte.
  bool is_sent_away() const {
    char byte = 0;
    return socket_.receive(&byte, 1, soon()) == TcpSocket::Outcome::lost;
  }

 private:
  TcpSocket socket_;
};

TEST(BootstrapUnderLoad, AWrongTokenIsNotAnswered) {
  Served served;
  const std::string token = kToken;
  for (const std::string& wrong : {std::string(), token.substr(1), token + "x", std::string(token.size(), 'x')}) {
    const RawClient stranger(served.server);
    ASSERT_TRUE(stranger.say(hello(wrong)));
    EXPECT_TRUE(stranger.is_sent_away());
  }
  const RawClient browser(served.server);
  ASSERT_TRUE(browser.say("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + std::string(sizeof(TcpHello), 'x')));
  EXPECT_TRUE(browser.is_sent_away());
  EXPECT_TRUE(served.reports.have("its token differs"));
  EXPECT_TRUE(served.reports.have("got other bytes"));
  EXPECT_TRUE(fails_with<UsageError>(
      {"rank 0 (127.0.0.1:", "closes the connection without an answer", "its token may differ", "STAGECOACH_TOKEN"},
      [&] {
        ControlChannel({served.server.address().at, "a wrong token of tests"}, "test", 2, 4, kLong);
      }));
  served.expect_service();
}

TEST(BootstrapUnderLoad, AFloodWithoutTheTokenIsNotTakenIn) {
  Served served;
  const std::string much = hello("a wrong token") + std::string(16 * kMebibyte, 'x');
  const std::size_t before = resident_bytes();
  for (int i = 0; i < 8; ++i) {
    EXPECT_FALSE(RawClient(served.server).say(much)) << "the connection is ended before all is sent";
    served.expect_service(20);
  }
  if (kMemoryIsTheServers) {
    EXPECT_LT(resident_bytes(), before + 16 * kMebibyte);
  }
}

TEST(BootstrapUnderLoad, FiveThousandConnections) {
  const DescriptorLimit limit;
  const std::size_t count = std::min<std::size_t>(5000, limit.most() - 200);
  Served served;
  const std::size_t before = descriptors();
  std::vector<RawClient> strangers;
  std::thread comes([&] {
    for (std::size_t i = 0; i < count; ++i) {
      strangers.emplace_back(served.server);
    }
  });
  served.expect_service(1000);
  { ControlChannel amid(served.server.address(), "test", 2, 4, kLong); }
  comes.join();
  EXPECT_EQ(strangers.size(), count);
  const ControlChannel late(served.server.address(), "test", 3, 4, kLong);
  const TcpAdmission::Limits limits;
  EXPECT_LE(descriptors(), before + count + 2 + limits.strangers + 1);
  EXPECT_TRUE(strangers.front().is_sent_away());
  EXPECT_LE(served.reports.count(), 20U) << "they do not fill a log";
  served.expect_service();
}

TEST(BootstrapUnderLoad, TheOldestOfThoseThatSayNothingMakesRoom) {
  Served served({.strangers = 2});
  const RawClient first(served.server);
  const RawClient second(served.server);
  const RawClient third(served.server);
  EXPECT_TRUE(first.is_sent_away());
  ASSERT_TRUE(second.say(hello(kToken)));
  EXPECT_TRUE(second.is_accepted());
}

TEST(BootstrapUnderLoad, ThoseThatSayNothingAreSentAway) {
  Served served({.patience = kShortPatience});
  const RawClient silent(served.server);
  EXPECT_TRUE(silent.is_sent_away());
  const RawClient halting(served.server);
  EXPECT_TRUE(halting.say(hello(kToken).substr(0, 20)));
  EXPECT_TRUE(halting.is_sent_away());
  EXPECT_TRUE(served.reports.have("it has not sent its token in time"));
  served.expect_service();
}

TEST(BootstrapUnderLoad, ARankThatReadsNothingKeepsNobodyWaitingAndIsBounded) {
  Served served;
  const RawClient slow(served.server);
  ASSERT_TRUE(slow.say(hello(kToken)) && slow.is_accepted());
  const std::size_t before = resident_bytes();
  const std::string text(BootstrapHeader::kMaxText, 'x');
  for (int i = 0; i < 4; ++i) {
    served.one.post(2, "nobody reads it", text);
    served.expect_service(20);
  }
  for (int i = 0; i < 40; ++i) {
    served.one.post(2, "nobody reads it", text);
  }
  if (kMemoryIsTheServers) {
    EXPECT_LT(resident_bytes(), before + 32 * kMebibyte);
  }
  EXPECT_TRUE(fails_with<CommError>({"the process of rank 2 has died"},
                                    [&] { ControlWait(served.other, {}, [] { return "waiting"; }).take("x"); }));
}

TEST(BootstrapUnderLoad, MessagesForARankThatNeverComesAreBounded) {
  Served served;
  const std::size_t before = resident_bytes();
  const std::string text(BootstrapHeader::kMaxText, 'x');
  const auto post_many = [&] {
    for (int i = 0; i < 40; ++i) {
      served.one.post(3, "it never comes", text);
    }
  };
  EXPECT_TRUE(fails_with<CommError>({"the connection to rank 0", "is lost"}, post_many));
  if (kMemoryIsTheServers) {
    EXPECT_LT(resident_bytes(), before + 32 * kMebibyte);
  }
}

TEST(BootstrapUnderLoad, WhatIsNoMessageEndsTheConnection) {
  std::string too_large = bootstrap_message(0, "key", "text");
  reinterpret_cast<BootstrapHeader*>(too_large.data())->text_bytes = 0xffffffff;
  for (const std::string& bad : {std::string(64, 'x'), too_large}) {
    Served served;
    const RawClient client(served.server);
    ASSERT_TRUE(client.say(hello(kToken)) && client.is_accepted());
    ASSERT_TRUE(client.say(bad));
    EXPECT_TRUE(client.is_sent_away());
    EXPECT_TRUE(fails_with<CommError>({"the process of rank 2 has died"},
                                      [&] { ControlWait(served.other, {}, [] { return "waiting"; }).take("x"); }));
  }
}

TEST(BootstrapUnderLoad, MessagesToRanksThatDoNotExistAreDropped) {
  Served served;
  for (const int nobody : {4, 1 << 30, -3, -(1 << 30)}) {
    served.one.post(nobody, "key", "text");
  }
  served.expect_service();
}

TEST(BootstrapUnderLoad, WithoutDescriptorsStrangersMakeRoom) {
  if (test::kSanitized) {
    GTEST_SKIP() << "to look at an object, the undefined-behaviour sanitizer opens a pipe";
  }
  Served served({.patience = std::chrono::hours(1)});
  const RawClient silent(served.server);
  const RawClient known(served.server);
  ASSERT_TRUE(known.say(hello(kToken)) && known.is_accepted());  // after it, so that is with the server now
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
  to.sin_port = htons(static_cast<std::uint16_t>(served.server.address().at.port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::connect(another.descriptor(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  EXPECT_TRUE(silent.is_sent_away());
  const std::string bytes = hello(kToken, 3);
  ASSERT_TRUE(another.send(bytes.data(), bytes.size()));
  std::uint32_t reason_bytes = 1;
  EXPECT_EQ(another.receive(&reason_bytes, sizeof(reason_bytes), soon()), TcpSocket::Outcome::done);
  EXPECT_EQ(reason_bytes, 0U);
  served.expect_service();
}

}  // namespace
}  // namespace stagecoach
