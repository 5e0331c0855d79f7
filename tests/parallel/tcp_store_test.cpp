// The store by which processes find each other, and the control that goes over it.

#include "parallel/comm/tcp/tcp_store.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
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

TcpStoreAddress here(int port) { return {{"127.0.0.1", port}, "a token of tests"}; }

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
int free_port() { return TcpStoreServer(here(0)).address().at.port; }

TEST(TcpStore, KeepsWhatOthersAskFor) {
  const TcpStoreServer server(here(0));
  TcpStore one(server.address(), "rank 0", kLongWait);
  TcpStore other({{"localhost", server.address().at.port}, server.address().token}, "rank 0", kLongWait);
  const std::string bytes("a\0b\n", 4);
  one.set("key", bytes);
  EXPECT_EQ(other.get("key"), bytes);
  EXPECT_EQ(other.get("key"), bytes) << "it stays";
  one.set("key", "");
  EXPECT_EQ(one.get("key"), "");
  EXPECT_EQ(one.add("number", 3), 3);
  EXPECT_EQ(other.add("number", -5), -2);
  const std::string large(TcpStore::kMaxBytes, 'x');
  one.set("large", large);
  EXPECT_EQ(other.get("large"), large);
  EXPECT_TRUE(fails_with({"at most"}, [&] { one.set("too large", large + "x"); }));
}

TEST(TcpStore, WaitsForWhatIsNotThereYet) {
  const TcpStoreServer server(here(0));
  auto waits = std::async(std::launch::async, [&] {
    TcpStore store(server.address(), "rank 0", kLongWait);
    store.push("begun", "");
    return store.get("late");
  });
  TcpStore store(server.address(), "rank 0", kLongWait);
  store.pop("begun");
  store.set("late", "there");
  EXPECT_EQ(waits.get(), "there");
}

TEST(TcpStore, QueuesKeepTheirOrder) {
  const TcpStoreServer server(here(0));
  TcpStore store(server.address(), "rank 0", kLongWait);
  for (const char* text : {"1", "2", "3"}) {
    store.push("queue", text);
  }
  for (const char* text : {"1", "2", "3"}) {
    EXPECT_EQ(store.pop("queue"), text);
  }
}

TEST(TcpStore, TellsOfALostClientUnlessItHasLeft) {
  const TcpStoreServer server(here(0));
  TcpStore store(server.address(), "rank 0", kLongWait);
  for (const bool leaves : {true, false}) {
    TcpStore other(server.address(), "rank 0", kLongWait);
    other.push_when_lost("news", leaves ? "of one that left" : "of one that was lost");
    if (leaves) {
      other.leave();
    }
    other.add("all told", 1);
  }
  EXPECT_EQ(store.pop("news"), "of one that was lost");
}

TEST(TcpStore, ServesManyAtOnce) {
  const TcpStoreServer server(here(0));
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        TcpStore store(server.address(), "rank 0", kLongWait);
        for (int i = 0; i < 100; ++i) {
          store.set(fmt::format("{}/{}", t, i), fmt::format("{}", t + i));
          EXPECT_EQ(store.get(fmt::format("{}/{}", (t + 1) % 8, i)), fmt::format("{}", (t + 1) % 8 + i));
          store.add("sum", 1);
        }
      });
    }
  }
  EXPECT_EQ(TcpStore(server.address(), "rank 0", kLongWait).add("sum", 0), 800);
}

TEST(TcpStore, ServesOtherProcesses) {
  // Processes first, then the server's thread: only a process of one thread can be doubled safely.
  const int port = free_port();
  std::vector<pid_t> processes;
  for (int p = 0; p < 3; ++p) {
    processes.push_back(in_a_process([&] {
      TcpStore store(here(port), "rank 0", kLongWait);  // nobody listens yet
      store.set(fmt::format("from {}", p), fmt::format("{}", 10 * p));
      store.get("end");
    }));
  }
  const TcpStoreServer server(here(port));
  TcpStore store(here(port), "rank 0", kLongWait);
  for (int p = 0; p < 3; ++p) {
    EXPECT_EQ(store.get(fmt::format("from {}", p)), fmt::format("{}", 10 * p));
  }
  store.set("end", "");
  for (const pid_t process : processes) {
    EXPECT_EQ(exit_code_of(process), 0);
  }
}

TEST(TcpStore, NobodyListens) {
  const int port = free_port();
  const std::string address = fmt::format("127.0.0.1:{}", port);
  EXPECT_TRUE(
      fails_with<CommError>({address.c_str(), "no answer within", "check that rank 0 is running there", "`timeout`"},
                            [&] { TcpStore(here(port), "rank 0", kShortWait); }));
}

TEST(TcpStore, AHostWithoutAnAddressIsRefused) {
  EXPECT_TRUE(fails_with<UsageError>({"no.such.host.invalid:1234", "MASTER_ADDR"}, [] {
    TcpStore({{"no.such.host.invalid", 1234}, "a token of tests"}, "rank 0", kShortWait);
  }));
}

TEST(TcpStore, WaitsEndAtTheDeadline) {
  const TcpStoreServer server(here(0));
  TcpStore store(server.address(), "rank 0", kShortWait);
  const std::string address = fmt::format("rank 0 (127.0.0.1:{})", server.address().at.port);
  EXPECT_TRUE(fails_with<CommError>({"waiting for 'never'", address.c_str(), "no answer within 0.05 s"},
                                    [&] { store.get("never"); }));
  EXPECT_TRUE(fails_with<CommError>({"lost"}, [&] { store.get("again"); })) << "a late answer would be another's";
}

TEST(TcpStore, AServerThatDiesEndsAWait) {
  int ports[2];
  ASSERT_EQ(::pipe(ports), 0);
  const pid_t process = in_a_process([&] {
    const TcpStoreServer server(here(0));
    const int port = server.address().at.port;
    if (::write(ports[1], &port, sizeof(port)) == sizeof(port)) {
      TcpStore(here(port), "rank 0", kLongWait).get("the other waits");
    }
  });
  int port = 0;
  ASSERT_EQ(::read(ports[0], &port, sizeof(port)), static_cast<ssize_t>(sizeof(port)));
  TcpStore store(here(port), "rank 0", kLongWait);
  store.set("the other waits", "");
  EXPECT_TRUE(fails_with<CommError>(
      {"waiting for 'never'", "the connection to rank 0", "is lost", "check whether that process"},
      [&] { store.get("never"); }));
  EXPECT_EQ(exit_code_of(process), 0);
}

TEST(TcpStore, APortThatIsTakenIsNamed) {
  const TcpStoreServer server(here(0));
  const std::string port = fmt::format("port {}", server.address().at.port);
  EXPECT_TRUE(
      fails_with<UsageError>({port.c_str(), "in use", "MASTER_PORT"}, [&] { TcpStoreServer again(server.address()); }));
}

TEST(TcpStore, OthersThatFindThePortAreSentAway) {
  const TcpStoreServer server(here(0));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  const TcpSocket stranger = connect_to(server.address().at, deadline);
  const std::string request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  ASSERT_TRUE(stranger.send(request.data(), request.size()));
  char answer = 0;
  EXPECT_EQ(stranger.receive(&answer, 1, deadline), TcpSocket::Outcome::lost);
  TcpStore store(server.address(), "rank 0", kLongWait);
  EXPECT_EQ(store.add("still there", 1), 1);
}

std::string wait_for(ControlChannel& control, const char* key) {
  ControlWait control_wait(control, {}, [&] { return fmt::format("waiting for {}", key); });
  for (;;) {
    if (auto text = control.take(key)) {
      return *text;
    }
    control_wait.poll();
  }
}

TEST(ControlChannel, ArrivesInOrderUnderItsKey) {
  const TcpStoreServer server(here(0));
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
  const TcpStoreServer server(here(0));
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
  const TcpStoreServer server(here(0));
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
  const TcpStoreServer server(here(port));
  ControlChannel control(here(port), "test", 0, 2, kLongWait);
  wait_for(control, "here");
  control.post(1, "die", "");
  EXPECT_TRUE(
      fails_with<CommError>({"stopped because the process of rank 1 has died"}, [&] { wait_for(control, "x"); }));
  EXPECT_EQ(exit_code_of(process), 0);
}

TEST(ControlChannel, ARankThatLeavesIsNoFailure) {
  const TcpStoreServer server(here(0));
  ControlChannel one(server.address(), "test", 0, 2, kShortWait);
  { ControlChannel other(server.address(), "test", 1, 2, kLongWait); }
  EXPECT_TRUE(fails_with<CommError>({"no answer within 0.05 s"}, [&] { wait_for(one, "x"); }));
  EXPECT_FALSE(one.has_failed());
}

}  // namespace
}  // namespace stagecoach
