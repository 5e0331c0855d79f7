// The bootstrap by which processes find each other, and the control channels that go over it.

#include "parallel/comm/tcp/bootstrap.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/comm/tcp/control_channel.h"
#include "tests/support/errors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using Seconds = std::chrono::duration<double>;

constexpr Seconds kLongWait(30);
constexpr Seconds kShortWait(0.05);

RankAddress here(int port) { return {{"127.0.0.1", port}, "a token of tests"}; }

/// Runs `body` in another process, and ends that without a farewell.
template <class Body>
pid_t in_a_process(const Body& body) {
  const pid_t process = ::fork();
  if (process == 0) {
    try {
      body();
    } catch (...) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  return process;
}

int exit_code_of(pid_t process) {
  int status = 0;
  ::waitpid(process, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// A port that nobody listens at.
int free_port() { return BootstrapServer(here(0), 1).address().at.port; }

std::string wait_for(ControlChannel& control, const char* key) {
  return ControlWait(control, {}, [&] { return fmt::format("waiting for {}", key); }).take(key);
}

TEST(Bootstrap, ServesOtherProcesses) {
  // Processes first, then the server's thread: only a process of one thread can be doubled safely.
  const int port = free_port();
  std::vector<pid_t> processes;
  for (int p = 1; p < 4; ++p) {
    processes.push_back(in_a_process([&] {
      ControlChannel control(here(port), "test", p, 4, kLongWait);  // nobody listens yet
      control.post(0, fmt::format("from {}", p), fmt::format("{}", 10 * p));
      wait_for(control, "end");
    }));
  }
  const BootstrapServer server(here(port), 4);
  ControlChannel control(here(port), "test", 0, 4, kLongWait);
  for (int p = 1; p < 4; ++p) {
    EXPECT_EQ(wait_for(control, fmt::format("from {}", p).c_str()), fmt::format("{}", 10 * p));
  }
  control.post(ControlChannel::kToAll, "end", "");
  for (const pid_t process : processes) {
    EXPECT_EQ(exit_code_of(process), 0);
  }
}

TEST(Bootstrap, PassesOnManyMessagesAtOnce) {
  constexpr int kRanks = 8;
  constexpr int kMessages = 100;
  const BootstrapServer server(here(0), kRanks);
  std::vector<std::jthread> threads;
  for (int r = 0; r < kRanks; ++r) {
    threads.emplace_back([&, r] {
      ControlChannel control(server.address(), "test", r, kRanks, kLongWait);
      for (int i = 0; i < kMessages; ++i) {
        control.post(ControlChannel::kToAll, fmt::format("from {}", r), fmt::format("{}", i));
      }
      for (int other = 0; other < kRanks; ++other) {
        for (int i = 0; other != r && i < kMessages; ++i) {
          ASSERT_EQ(wait_for(control, fmt::format("from {}", other).c_str()), fmt::format("{}", i));
        }
      }
    });
  }
}

TEST(Bootstrap, TakesMessagesUpToAMegabyte) {
  const BootstrapServer server(here(0), 2);
  ControlChannel one(server.address(), "test", 0, 2, kLongWait);
  ControlChannel other(server.address(), "test", 1, 2, kLongWait);
  const std::string large(BootstrapHeader::kMaxText, 'x');
  one.post(1, "large", large);
  EXPECT_EQ(wait_for(other, "large"), large);
  EXPECT_TRUE(fails_with({"at most 1048576 bytes"}, [&] { one.post(1, "too large", large + "x"); }));
}

TEST(Bootstrap, KeepsMessagesForARankThatComesLater) {
  const BootstrapServer server(here(0), 3);
  ControlChannel one(server.address(), "test", 0, 3, kLongWait);
  { ControlChannel left(server.address(), "test", 2, 3, kLongWait); }
  one.post(1, "early", "1");
  one.post(2, "too late", "2");
  one.fail("it broke");
  ControlChannel late(server.address(), "test", 1, 3, kLongWait);
  EXPECT_TRUE(fails_with<CommError>({"stopped because rank 0 has failed (it broke)"}, [&] { wait_for(late, "x"); }));
  EXPECT_EQ(late.take("early"), "1");
}

TEST(Bootstrap, GroupsAreIndependent) {
  const BootstrapServer server(here(0), 2);
  ControlChannel one(server.address(), "run 0", 0, 2, kLongWait);
  ControlChannel other(server.address(), "run 1", 1, 2, kLongWait);
  one.fail("it broke");
  one.post(1, "a", "of run 0");
  ControlChannel again(server.address(), "run 1", 0, 2, kLongWait);
  again.post(1, "a", "of run 1");
  EXPECT_EQ(wait_for(other, "a"), "of run 1");
  EXPECT_FALSE(other.has_failed());
}

TEST(Bootstrap, NobodyListens) {
  const int port = free_port();
  const std::string address = fmt::format("127.0.0.1:{}", port);
  EXPECT_TRUE(
      fails_with<CommError>({address.c_str(), "no answer within", "check that rank 0 is running there", "`timeout`"},
                            [&] { ControlChannel(here(port), "test", 1, 2, kShortWait); }));
}

TEST(Bootstrap, AHostWithoutAnAddressIsRefused) {
  EXPECT_TRUE(fails_with<UsageError>({"no.such.host.invalid:1234", "MASTER_ADDR"}, [] {
    ControlChannel({{"no.such.host.invalid", 1234}, "a token of tests"}, "test", 1, 2, kShortWait);
  }));
}

TEST(Bootstrap, APortThatIsTakenIsNamed) {
  const BootstrapServer server(here(0), 2);
  const std::string port = fmt::format("port {}", server.address().at.port);
  EXPECT_TRUE(fails_with<UsageError>({port.c_str(), "in use", "MASTER_PORT"},
                                     [&] { BootstrapServer again(server.address(), 2); }));
}

TEST(Bootstrap, ARankThatIsTakenIsNamed) {
  const BootstrapServer server(here(0), 2);
  const ControlChannel one(server.address(), "run", 1, 2, kLongWait);
  EXPECT_TRUE(fails_with<UsageError>({"rank 0 (127.0.0.1:", "rejects", "two processes claim to be rank 1", "RANK"},
                                     [&] { ControlChannel(server.address(), "run", 1, 2, kLongWait); }));
  const ControlChannel another_run(server.address(), "run 2", 1, 2, kLongWait);
}

TEST(ControlChannel, ArrivesInOrderUnderItsKey) {
  const BootstrapServer server(here(0), 2);
  ControlChannel one(server.address(), "test", 0, 2, kLongWait);
  ControlChannel other(server.address(), "test", 1, 2, kLongWait);
  one.post(1, "a", "1");
  one.post(1, "b", "two\nlines");
  one.post(1, "a", "3");
  EXPECT_EQ(wait_for(other, "b"), "two\nlines");
  EXPECT_EQ(wait_for(other, "a"), "1");
  EXPECT_EQ(wait_for(other, "a"), "3");
  EXPECT_FALSE(other.take("a").has_value());
}

// A process that stands still does not look at the clock either.
TEST(ControlChannel, WaitsAnewAfterItsProcessStoodStill) {
  const BootstrapServer server(here(0), 2);
  ControlChannel control(server.address(), "test", 0, 2, std::chrono::milliseconds(500));
  ControlWait control_wait(control, {}, [] { return "waiting"; });
  std::this_thread::sleep_for(WaitTime::kStandstill + std::chrono::milliseconds(100));
  EXPECT_NO_THROW(control_wait.poll());
  const auto keep_waiting = [&] {
    for (;;) {
      control_wait.poll();
    }
  };
  EXPECT_TRUE(fails_with<CommError>({"waiting: no answer within 0.5 s"}, keep_waiting));
}

TEST(ControlChannel, BringsTheNewsOfAFailure) {
  const BootstrapServer server(here(0), 2);
  ControlChannel one(server.address(), "test", 0, 2, kLongWait);
  ControlChannel other(server.address(), "test", 1, 2, kLongWait);
  other.fail("the disk is on fire");
  EXPECT_TRUE(fails_with<CommError>({"waiting for x: stopped because rank 1 has failed (the disk is on fire)"},
                                    [&] { wait_for(one, "x"); }));
}

TEST(ControlChannel, BringsTheNewsOfADeath) {
  const int port = free_port();
  const pid_t process = in_a_process([&] {
    ControlChannel control(here(port), "test", 1, 2, kLongWait);
    control.post(0, "here", "");
    wait_for(control, "die");
    ::_exit(0);  // without a farewell
  });
  const BootstrapServer server(here(port), 2);
  ControlChannel control(here(port), "test", 0, 2, kLongWait);
  wait_for(control, "here");
  control.post(1, "die", "");
  EXPECT_TRUE(
      fails_with<CommError>({"stopped because the process of rank 1 has died"}, [&] { wait_for(control, "x"); }));
  EXPECT_EQ(exit_code_of(process), 0);
}

TEST(ControlChannel, ThatLosesRankZeroFails) {
  auto server = std::make_unique<BootstrapServer>(here(0), 2);
  ControlChannel control(server->address(), "test", 1, 2, kLongWait);
  server.reset();
  EXPECT_TRUE(fails_with<CommError>({"waiting for x: stopped because the connection to rank 0 (127.0.0.1:", "is lost",
                                     "check whether that process has ended"},
                                    [&] { wait_for(control, "x"); }));
}

TEST(ControlChannel, ARankThatLeavesIsNoFailure) {
  const BootstrapServer server(here(0), 2);
  ControlChannel one(server.address(), "test", 0, 2, kShortWait);
  { ControlChannel other(server.address(), "test", 1, 2, kLongWait); }
  EXPECT_TRUE(fails_with<CommError>({"no answer within 0.05 s"}, [&] { wait_for(one, "x"); }));
  EXPECT_FALSE(one.has_failed());
}

}  // namespace
}  // namespace stagecoach
