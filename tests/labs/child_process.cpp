#include "tests/labs/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <random>
#include <system_error>

#include "core/base/error.h"
#include "tests/labs/descendants.h"

namespace stagecoach::labs {
namespace {

constexpr std::size_t kMostPrinted = 2000;
constexpr std::size_t kMostReported = std::size_t{1} << 20U;

[[noreturn]] void throw_system_error(const char* call) {
  throw std::system_error(errno, std::generic_category(), call);
}

/// A pipe from the child.
class Pipe {
 public:
  Pipe() {
    if (::pipe(ends_.data()) != 0) {
      throw_system_error("pipe");
    }
    for (const int end : ends_) {
      ::fcntl(end, F_SETFD, FD_CLOEXEC);
    }
  }
  ~Pipe() {
    close(0);
    close(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int write_end() const { return ends_[1]; }
  /// Keeps the end that the parent reads, without waiting for the child.
  void read_only() {
    close(1);
    ::fcntl(ends_[0], F_SETFL, O_NONBLOCK);
  }
  /// Reads what is there; keeps the first `most` bytes.
  void drain(std::string& text, std::size_t most) {
    std::array<char, 4096> buffer{};
    while (is_open()) {
      const ssize_t count = ::read(ends_[0], buffer.data(), buffer.size());
      if (count > 0) {
        text.append(buffer.data(), static_cast<std::size_t>(count));
        text.resize(std::min(text.size(), most));
      } else if (count == 0) {
        close(0);
      } else if (errno != EINTR) {
        return;
      }
    }
  }
  bool is_open() const { return ends_[0] >= 0; }
  pollfd readable() const { return {.fd = ends_[0], .events = POLLIN, .revents = 0}; }

 private:
  void close(std::size_t end) {
    if (ends_[end] >= 0) {
      ::close(ends_[end]);
      ends_[end] = -1;
    }
  }
  std::array<int, 2> ends_{-1, -1};
};

template <class Resource>
void limit(Resource resource, rlim_t most, rlim_t at_last) {
  const rlimit value{.rlim_cur = most, .rlim_max = at_last};
  ::setrlimit(resource, &value);
}

/// The child: what it prints goes to one pipe, and what `body` returns to the other, whose number is then 3.
[[noreturn]] void run_and_end(const Limits& limits, const std::function<std::string()>& body, const Pipe& reported,
                              const Pipe& printed) {
  ::setpgid(0, 0);
  end_with_parent();
  const auto seconds = static_cast<rlim_t>(limits.processor_seconds);
  limit(RLIMIT_CPU, seconds, seconds + 1);
  limit(RLIMIT_AS, limits.memory, limits.memory);
  limit(RLIMIT_CORE, 0, 0);
  constexpr int kReport = 3;
  const int null = ::open("/dev/null", O_RDONLY);
  const int out = ::dup(printed.write_end());
  const int report = ::fcntl(reported.write_end(), F_DUPFD, 10);
  ::dup2(null, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(out, STDERR_FILENO);
  ::dup2(report, kReport);
  close_descriptors_from(kReport + 1);
  const std::string text = body();
  std::cout.flush();
  std::fflush(nullptr);
  for (std::size_t sent = 0; sent < text.size();) {
    const ssize_t count = ::write(kReport, text.data() + sent, text.size() - sent);
    if (count <= 0) {
      break;
    }
    sent += static_cast<std::size_t>(count);
  }
  ::_exit(0);
}

/// Ends all that `child`, which has ended, has started and left behind: its process group at once, so that nobody there
/// can start another process; then what has left the group. What loses its parent becomes a child of this process
/// (adopt_descendants), so killing children until there are none ends all descendants. Other systems than Linux do not
/// tell of children; there, what has left the group goes on.
void end_descendants(pid_t child) {
  ::kill(-child, SIGKILL);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (::waitpid(-1, nullptr, WNOHANG) >= 0) {  // -1: there are no children
    for (const pid_t left : children()) {
      ::kill(left, SIGKILL);
    }
    if (std::chrono::steady_clock::now() > deadline) {
      throw Error(
          "a check has started processes that do not end: expected none after it, got some; the rest of the lab "
          "is not graded");
    }
  }
}

/// Tells whether a child waits: for some seconds it has used hardly any processor time, as also one that asks again and
/// again whether something has come. Where the system does not tell, a child that has not ended by then counts as
/// waiting.
class Idleness {
 public:
  Idleness(pid_t child, int seconds) : child_(child), seconds_(seconds) {}

  bool lasts() {
    constexpr double kShare = 0.05;  // of a core: a loop gets more on any machine
    if (Clock::now() - since_ < seconds_) {
      return false;
    }
    const double used = processor_seconds(child_).value_or(0);
    const bool is_idle = used - used_ < kShare * static_cast<double>(seconds_.count());
    used_ = used;
    since_ = Clock::now();
    return is_idle;
  }

 private:
  using Clock = std::chrono::steady_clock;
  pid_t child_;
  std::chrono::seconds seconds_;
  Clock::time_point since_ = Clock::now();
  double used_ = 0;
};

enum class EndedBy { itself, idleness, wall_time };

std::string description_of(int status, EndedBy by, const Limits& limits) {
  if (by == EndedBy::wall_time) {
    return fmt::format("it did not end within {} s", limits.wall_seconds);
  }
  if (by == EndedBy::idleness) {
    return fmt::format("it did nothing for {} s: it waits for something that does not come", limits.idle_seconds);
  }
  if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGXCPU || WTERMSIG(status) == SIGKILL)) {
    return fmt::format("it used more than {} s of processor time: an endless loop, or a very long one",
                       limits.processor_seconds);
  }
  if (WIFSIGNALED(status)) {
    return fmt::format("it crashed: {}", ::strsignal(WTERMSIG(status)));
  }
  return fmt::format("it ended the process, with exit code {}", WEXITSTATUS(status));
}

}  // namespace

Ended run_in_child(const Limits& limits, const std::function<std::string()>& body) {
  adopt_descendants();
  Pipe reported;
  Pipe printed;
  std::cout.flush();
  std::fflush(nullptr);  // or the child prints it too
  const pid_t child = ::fork();
  if (child < 0) {
    throw_system_error("fork");
  }
  if (child == 0) {
    run_and_end(limits, body, reported, printed);
  }
  reported.read_only();
  printed.read_only();

  using Clock = std::chrono::steady_clock;
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(limits.wall_seconds);
  Idleness idleness(child, limits.idle_seconds);
  Ended ended;
  int status = 0;
  bool is_running = true;
  EndedBy by = EndedBy::itself;
  while (is_running && by == EndedBy::itself) {
    std::array<pollfd, 2> pipes{reported.readable(), printed.readable()};
    const bool are_open = reported.is_open() || printed.is_open();
    ::poll(pipes.data(), pipes.size(), are_open ? 50 : 1);
    reported.drain(ended.reported, kMostReported);
    printed.drain(ended.printed, kMostPrinted);
    is_running = ::waitpid(child, &status, WNOHANG) == 0;
    by = !is_running                ? EndedBy::itself
         : idleness.lasts()         ? EndedBy::idleness
         : Clock::now() >= deadline ? EndedBy::wall_time
                                    : EndedBy::itself;
  }
  if (is_running) {
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
  }
  end_descendants(child);
  reported.drain(ended.reported, kMostReported);
  printed.drain(ended.printed, kMostPrinted);
  ended.how = description_of(status, by, limits);
  return ended;
}

std::string random_word() {
  std::random_device device;
  std::string word;
  for (int i = 0; i < 4; ++i) {
    word += fmt::format("{:08x}", device());
  }
  return word;
}

}  // namespace stagecoach::labs
