#include <fmt/format.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <string_view>

#include "core/base/system.h"

namespace stagecoach::system {
namespace {

using CoreSet = std::array<cpu_set_t, 16>;  // a cpu_set_t holds 1,024 cores, and some machines have more
constexpr int kMaxCores = CPU_SETSIZE * 16;

/// Returns the number in a file such as "123\n", or nothing if the file says "max" or does not exist.
std::optional<std::uint64_t> number_in(const char* path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

/// Returns the sum of the numbers that follow these names, each first on its line, or nothing if none of them is there.
std::optional<std::uint64_t> sum_in(const char* path, std::initializer_list<std::string_view> names) {
  std::ifstream file(path);
  std::optional<std::uint64_t> sum;
  std::string name;
  std::string unit;
  for (std::uint64_t number = 0; file >> name >> number && std::getline(file, unit);) {
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      sum = sum.value_or(0) + number;
    }
  }
  return sum;
}

std::optional<std::uint64_t> free_on_this_machine() {
  const auto kibibytes = sum_in("/proc/meminfo", {"MemAvailable:", "SwapFree:"});
  return kibibytes ? std::optional(*kibibytes * 1024) : std::nullopt;
}

std::optional<std::uint64_t> left_by_control_group() {
  const auto limit = number_in("/sys/fs/cgroup/memory.max");
  const auto used = number_in("/sys/fs/cgroup/memory.current");
  if (!limit || !used) {
    return std::nullopt;
  }
  // Files that were read count as used, but make room for whoever needs it.
  const std::uint64_t files = sum_in("/sys/fs/cgroup/memory.stat", {"inactive_file", "active_file"}).value_or(0);
  const std::uint64_t in_use = *used - std::min(*used, files);
  return *limit - std::min(*limit, in_use);
}

}  // namespace

const int kNoSignal = MSG_NOSIGNAL;

std::vector<int> usable_cores() {
  CoreSet set{};
  std::vector<int> cores;
  if (::sched_getaffinity(::getpid(), sizeof(set), set.data()) == 0) {  // the process id is that of its main thread
    for (int core = 0; core < kMaxCores; ++core) {
      if (CPU_ISSET_S(core, sizeof(set), set.data())) {
        cores.push_back(core);
      }
    }
  }
  return cores;
}

bool run_on_cores(const std::vector<int>& cores) {
  CoreSet set{};
  for (const int core : cores) {
    CPU_SET_S(core, sizeof(set), set.data());
  }
  return ::sched_setaffinity(0, sizeof(set), set.data()) == 0;
}

std::function<std::int64_t()> processor_time_of_this_thread() {
  clockid_t clock{};
  if (::pthread_getcpuclockid(::pthread_self(), &clock) != 0) {
    return {};
  }
  return [clock] {
    timespec time{};
    ::clock_gettime(clock, &time);
    return std::int64_t{1'000'000'000} * time.tv_sec + time.tv_nsec;
  };
}

std::optional<std::uint64_t> free_memory() {
  const auto machine = free_on_this_machine();
  const auto group = left_by_control_group();
  return machine && group ? std::min(machine, group) : std::max(machine, group);  // nothing is less than any number
}

std::optional<std::uint64_t> address_space() {
  const auto pages = number_in("/proc/self/statm");
  return pages ? std::optional(*pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))) : std::nullopt;
}

void give_back_freed_memory() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

void prefer_large_pages(void* memory, std::size_t bytes) { static_cast<void>(::madvise(memory, bytes, MADV_HUGEPAGE)); }

std::array<int, 2> open_wakeup() {
  const int descriptor = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return {descriptor, descriptor};
}

int open_tcp_socket() { return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

int accept_connection(int listening) { return ::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); }

std::string process_space() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  file >> boot;
  struct stat processes {};
  static_cast<void>(::stat("/proc/self/ns/pid", &processes));
  return fmt::format("{} {}", boot, processes.st_ino);
}

int watch_process(int id) { return static_cast<int>(::syscall(SYS_pidfd_open, id, 0)); }

bool has_ended(int process) {
  pollfd query{.fd = process, .events = POLLIN, .revents = 0};
  return ::poll(&query, 1, 0) > 0;
}

}  // namespace stagecoach::system
