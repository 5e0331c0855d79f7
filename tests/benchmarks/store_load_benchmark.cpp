// How long the ranks wait for their store while others misbehave, and what its server holds meanwhile. Prints Markdown.
//
//   quiet, loaded   a rank's add(): the median of many calls, alone and beside the load, in turn
//   load            what the others did meanwhile: connections, or requests, per second
//   memory          how much the process with the server has grown, at most
//   descriptors     how many it has opened, at most
//
// The others are one process, which never pauses.

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "parallel/comm/tcp/tcp_socket.h"
#include "parallel/comm/tcp/tcp_store.h"
#include "parallel/comm/tcp/tcp_store_message.h"

namespace stagecoach {
namespace {

using Clock = std::chrono::steady_clock;
using Request = TcpStoreRequest;

constexpr int kRanks = 4;
constexpr int kRepeats = 5;
constexpr int kCalls = 3000;
constexpr std::size_t kConnections = 5000;
constexpr const char* kToken = "a token of measurements";
constexpr std::chrono::seconds kLong(60);

std::string hello(const std::string& token, const std::string& name = "") {
  std::string bytes;
  append_head(bytes, TcpStoreHello{TcpStoreHello::kMagic, static_cast<std::uint32_t>(token.size()),
                                   static_cast<std::uint32_t>(name.size())});
  return bytes + token + name;
}

std::string request(Request::Operation operation, const std::string& key, const std::string& value = "") {
  std::string bytes;
  append_head(bytes, Request{operation, static_cast<std::uint32_t>(key.size()),
                             static_cast<std::uint32_t>(value.size()), Request::kMagic, 1});
  return bytes + key + value;
}

/// What the others count, in memory that they share with this process.
using Count = std::atomic<std::int64_t>;

Count& shared_count() {
  void* memory = ::mmap(nullptr, sizeof(Count), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  STAGECOACH_CHECK(memory != MAP_FAILED, "no shared memory");
  return *new (memory) Count(0);
}

// What the others do, until they are killed. They count from when it has come to the server.
class Load {
 public:
  Load(TcpAddress to, Count& count) : to_(std::move(to)), count_(count) {}

  [[noreturn]] void slow_reader() const {
    const TcpSocket socket = connected(hello(kToken));
    for (int i = 0; i < 200; ++i) {
      say(socket, request(Request::kGet, "large"));
      ++count_;
    }
    for (;;) {
      ::pause();
    }
  }
  [[noreturn]] void flood() const {
    const std::string much(16 << 20, 'x');
    for (;; ++count_) {
      say(connected(hello("a wrong token")), much);
    }
  }
  [[noreturn]] void unfinished() const {
    std::vector<TcpSocket> all(100);
    for (std::size_t next = 0;; next = (next + 1) % all.size(), ++count_) {
      all[next] = connected(hello(kToken).substr(0, 20));
    }
  }
  [[noreturn]] void connections() const {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    std::vector<TcpSocket> all(kConnections);
    for (TcpSocket& one : all) {
      one = connected("");
    }
    for (std::size_t next = 0;; next = (next + 1) % all.size(), ++count_) {
      all[next] = connected("");
    }
  }
  [[noreturn]] void wrong_token() const {
    for (;; ++count_) {
      wait_for_end(connected(hello("a wrong token")));
    }
  }
  [[noreturn]] void taken_rank() const {
    for (;; ++count_) {
      wait_for_end(connected(hello(kToken, "rank 1")));
    }
  }
  [[noreturn]] void insider() const {
    const TcpSocket socket = connected(hello(kToken));
    std::string many;
    for (int i = 0; i < 1000; ++i) {
      many += request(Request::kSet, "a key", std::string(100, 'x'));
    }
    for (;; count_ += 1000) {
      say(socket, many);
    }
  }
  [[noreturn]] void hoarder() const {
    const std::string value(TcpStore::kMaxBytes, 'x');
    for (;; ++count_) {
      const TcpSocket socket = connected(hello(kToken));
      while (say(socket, request(Request::kPush, "nobody takes it out", value))) {
      }
    }
  }

 private:
  TcpSocket connected(const std::string& greeting) const {
    TcpSocket socket = connect_to(to_, Clock::now() + kLong);
    say(socket, greeting);
    return socket;
  }
  /// False when it has been sent away.
  static bool say(const TcpSocket& socket, const std::string& bytes) { return socket.send(bytes.data(), bytes.size()); }
  static void wait_for_end(const TcpSocket& socket) {
    char byte = 0;
    while (socket.receive(&byte, 1, Clock::now() + kLong) == TcpSocket::Outcome::done) {
    }
  }

  TcpAddress to_;
  Count& count_;
};

struct Kind {
  const char* words;
  void (Load::*run)() const;
};
constexpr Kind kKinds[] = {
    {"one with the token asks for 200 MiB and reads nothing", &Load::slow_reader},
    {"16 MiB after a wrong token, again and again", &Load::flood},
    {"100 greetings that never end, and new ones", &Load::unfinished},
    {"5,000 connections that say nothing, and new ones", &Load::connections},
    {"wrong tokens, one after another", &Load::wrong_token},
    {"rank 1 a second time, again and again", &Load::taken_rank},
    {"one with the token sets values without end", &Load::insider},
    {"some with the token push 1 MiB again and again", &Load::hoarder},
};

/// Another process that makes a load from its construction on until it is destroyed.
class LoadProcess {
 public:
  LoadProcess(const Kind& kind, const TcpAddress& to) : count_(shared_count()), process_(::fork()) {
    if (process_ == 0) {
      try {
        (Load(to, count_).*kind.run)();
      } catch (const std::exception& error) {
        fmt::print(stderr, "the load '{}': {}\n", kind.words, error.what());
        ::_exit(4);
      }
    }
    while (count_ == 0) {
      STAGECOACH_CHECK(::waitpid(process_, nullptr, WNOHANG) == 0, "the load '{}' has ended", kind.words);
      std::this_thread::yield();
    }
  }
  ~LoadProcess() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    ::munmap(&count_, sizeof(count_));
  }
  LoadProcess(const LoadProcess&) = delete;
  LoadProcess& operator=(const LoadProcess&) = delete;

  std::int64_t count() const { return count_; }

 private:
  Count& count_;
  pid_t process_;
};

struct Held {
  std::size_t bytes = 0;
  std::size_t descriptors = 0;
};

Held held_now() {
  std::ifstream file("/proc/self/statm");
  std::size_t pages = 0;
  file >> pages >> pages;
  const std::filesystem::directory_iterator all("/dev/fd");
  return {pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)),
          static_cast<std::size_t>(std::distance(begin(all), end(all)))};
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The rank's calls, each in microseconds; `most` grows to what is held during them.
void measure(TcpStore& rank, std::vector<double>& times, Held& most) {
  for (int i = 0; i < kCalls; ++i) {
    const auto began = Clock::now();
    rank.add("calls", 1);
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - began).count());
    if (i % 100 == 0) {
      const Held now = held_now();
      most = {std::max(most.bytes, now.bytes), std::max(most.descriptors, now.descriptors)};
    }
  }
}

void measure_all() {
  const TcpStoreServer server({{"127.0.0.1", 0}, kToken}, {.clients = 4 * kRanks}, [](const std::string&) {});
  std::vector<std::unique_ptr<TcpStore>> ranks;
  for (int r = 0; r < kRanks; ++r) {
    ranks.push_back(std::make_unique<TcpStore>(server.address(), "rank 0", kLong, fmt::format("rank {}", r)));
  }
  TcpStore& rank = *ranks.front();
  rank.set("large", std::string(TcpStore::kMaxBytes, 'x'));
  fmt::print(
      "| others | load | quiet | loaded | ratio | longest call, quiet and loaded | memory | descriptors "
      "|\n|---|---|---|---|---|---|---|---|\n");
  for (const Kind& kind : kKinds) {
    std::vector<double> quiet;
    std::vector<double> loaded;
    const Held before = held_now();
    Held most = before;
    Held unused{};
    std::int64_t count = 0;
    Clock::duration while_loaded{};
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      measure(rank, quiet, unused);
      const LoadProcess load(kind, server.address().at);
      const auto began = Clock::now();
      const std::int64_t count_before = load.count();
      measure(rank, loaded, most);
      while_loaded += Clock::now() - began;
      count += load.count() - count_before;
    }
    fmt::print("| {} | {:.0f}/s | {:.0f} us | {:.0f} us | {:.2f} | {:.0f} ms, {:.0f} ms | {:.1f} MiB | {} |\n",
               kind.words, static_cast<double>(count) / std::chrono::duration<double>(while_loaded).count(),
               median(quiet), median(loaded), median(loaded) / median(quiet),
               *std::max_element(quiet.begin(), quiet.end()) / 1e3,
               *std::max_element(loaded.begin(), loaded.end()) / 1e3,
               static_cast<double>(most.bytes - before.bytes) / (1 << 20), most.descriptors - before.descriptors);
    std::fflush(stdout);
  }
  fmt::print("\nOn {} cores. The process with the server and all its ranks has {:.1f} MiB in the end.\n",
             std::thread::hardware_concurrency(), static_cast<double>(held_now().bytes) / (1 << 20));
}

}  // namespace
}  // namespace stagecoach

int main() {
  try {
    stagecoach::measure_all();
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "store_load_benchmark: {}\n", error.what());
    return 4;
  }
}
