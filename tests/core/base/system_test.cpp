// What every system does; those of one system have tests of their own.

#include "core/base/system.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <set>
#include <thread>
#include <vector>

namespace stagecoach {
namespace {

/// Owns a descriptor.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { ::close(number_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  operator int() const { return number_; }

 private:
  int number_;
};

bool is_prepared(int descriptor) {
  return (::fcntl(descriptor, F_GETFD) & FD_CLOEXEC) != 0 && (::fcntl(descriptor, F_GETFL) & O_NONBLOCK) != 0;
}

bool becomes_readable(int descriptor) {
  pollfd query{.fd = descriptor, .events = POLLIN, .revents = 0};
  return ::poll(&query, 1, 10'000) == 1;
}

/// Returns the address at which the socket listens from now on.
sockaddr_in listen_locally(int socket) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(at);
  EXPECT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&at), sizeof(at)), 0);
  EXPECT_EQ(::listen(socket, 1), 0);
  EXPECT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&at), &size), 0);
  return at;
}

TEST(System, ReadsTheProcessorTimeOfAnotherThread) {
  const auto used = system::processor_time_of_this_thread();
  if (!used) {
    GTEST_SKIP() << "this system does not report it";
  }
  std::int64_t after = 0;
  const std::int64_t before = used();
  while (used() == before) {  // reading takes time, too
  }
  std::jthread([&] { after = used(); }).join();
  EXPECT_GT(after, before);
}

TEST(System, CoresAreDifferentNumbers) {
  const std::vector<int> cores = system::usable_cores();
  ASSERT_FALSE(cores.empty());
  EXPECT_LE(cores.size(), std::thread::hardware_concurrency());
  EXPECT_EQ(std::set<int>(cores.begin(), cores.end()).size(), cores.size());
}

TEST(System, FreeMemoryIsAtMostThatOfTheMachine) {
  const auto free = system::free_memory();
  ASSERT_TRUE(free);
  EXPECT_GT(*free, std::uint64_t{1} << 20);
  EXPECT_LT(*free, std::uint64_t{1} << 46);
}

TEST(System, TheAddressSpaceGrowsWithWhatIsAllocated) {
  const auto before = system::address_space();
  if (!before) {
    GTEST_SKIP() << "this system does not report it";
  }
  const std::vector<char> more(std::size_t{256} << 20);
  EXPECT_GE(*system::address_space(), *before + (std::uint64_t{128} << 20));
}

TEST(System, SocketsAreClosedByExecAndDoNotBlock) {
  const Descriptor listening(system::open_tcp_socket());
  EXPECT_TRUE(is_prepared(listening));
  const sockaddr_in at = listen_locally(listening);
  EXPECT_EQ(system::accept_connection(listening), -1);
  EXPECT_EQ(errno, EAGAIN);

  const Descriptor client(system::open_tcp_socket());
  static_cast<void>(::connect(client, reinterpret_cast<const sockaddr*>(&at), sizeof(at)));
  ASSERT_TRUE(becomes_readable(listening));
  const Descriptor accepted(system::accept_connection(listening));
  EXPECT_TRUE(is_prepared(accepted));
}

TEST(System, SendingToALostPeerRaisesNoSignal) {
  const Descriptor listening(system::open_tcp_socket());
  const sockaddr_in at = listen_locally(listening);
  const Descriptor client(system::open_tcp_socket());
  static_cast<void>(::connect(client, reinterpret_cast<const sockaddr*>(&at), sizeof(at)));
  ASSERT_TRUE(becomes_readable(listening));
  { const Descriptor accepted(system::accept_connection(listening)); }
  ASSERT_TRUE(becomes_readable(client)) << "the peer has closed";
  const char byte = 0;
  int error = 0;
  for (int i = 0; i < 1000 && error == 0; ++i) {  // the first answer to a closed connection comes after the first send
    error = ::send(client, &byte, 1, system::kNoSignal) < 0 ? errno : 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(error == EPIPE || error == ECONNRESET) << error;
}

TEST(System, AProcessThatIsWatchedIsSeenToEnd) {
  EXPECT_EQ(system::process_space(), system::process_space());
  EXPECT_FALSE(system::process_space().empty());
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const int watched = system::watch_process(child);
  ASSERT_GE(watched, 0);
  EXPECT_FALSE(system::has_ended(watched));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(system::has_ended(watched));
}

}  // namespace
}  // namespace stagecoach
