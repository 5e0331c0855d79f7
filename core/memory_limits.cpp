#include "core/memory_limits.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <new>
#include <optional>

#include "core/error.h"

namespace stagecoach {
namespace {

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();
constexpr std::size_t kReserveBytes = std::size_t{4} << 20;  // the C library takes 1 MiB at a time when memory is short

std::atomic<void*> reserve = nullptr;
std::atomic<bool> has_run_out = false;

std::uint64_t difference(std::uint64_t limit, std::uint64_t used) { return limit - std::min(limit, used); }

/// Returns the number in a file such as "123\n", or nothing if the file says "max" or does not exist.
std::optional<std::uint64_t> number_in(const char* path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

std::uint64_t free_on_this_machine() {
  std::ifstream file("/proc/meminfo");
  std::uint64_t bytes = 0;
  bool is_known = false;
  std::string name;
  std::string unit;
  for (std::uint64_t kibibytes = 0; file >> name >> kibibytes && std::getline(file, unit);) {
    if (name == "MemAvailable:" || name == "SwapFree:") {
      bytes += kibibytes * 1024;
      is_known = true;
    }
  }
  return is_known ? bytes : kNoLimit;
}

std::uint64_t left_by_control_group() {
  const auto limit = number_in("/sys/fs/cgroup/memory.max");
  const auto used = number_in("/sys/fs/cgroup/memory.current");
  return limit && used ? difference(*limit, *used) : kNoLimit;
}

std::uint64_t left_by_address_space() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return kNoLimit;
  }
  const auto pages = number_in("/proc/self/statm");  // the first number is the virtual size of the process
  return difference(limit.rlim_cur, pages.value_or(0) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)));
}

}  // namespace

std::uint64_t available_memory() {
  return std::min({free_on_this_machine(), left_by_control_group(), left_by_address_space()});
}

void require_memory_for(const std::string& what, std::uint64_t bytes) {
  const std::uint64_t available = available_memory();
  if (bytes > available) {
    throw DataError(
        fmt::format("{} does not fit into memory: it needs {} bytes, {} bytes are available; use a smaller file or "
                    "data set, or a machine with more memory",
                    what, bytes, available));
  }
}

void keep_memory_reserve() {
  std::free(reserve.exchange(std::malloc(kReserveBytes)));
  std::set_new_handler([] {
    has_run_out = true;
    std::free(reserve.exchange(nullptr));
    throw std::bad_alloc();
  });
}

bool has_memory_run_out() { return has_run_out; }

}  // namespace stagecoach
