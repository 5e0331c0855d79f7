#include "core/base/memory_limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>

#include "core/base/error.h"
#include "core/base/system.h"
#include "core/base/throw_if.h"

namespace stagecoach {
namespace {

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();
constexpr std::size_t kReserveBytes = std::size_t{4} << 20;  // the C library takes 1 MiB at a time when memory is short

std::atomic<void*> reserve = nullptr;
std::atomic<bool> has_run_out = false;

std::uint64_t left_by_address_space() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return kNoLimit;
  }
  const std::uint64_t most = limit.rlim_cur;
  return most - std::min(most, system::address_space().value_or(0));
}

}  // namespace

std::uint64_t available_memory() { return std::min(system::free_memory().value_or(kNoLimit), left_by_address_space()); }

void require_memory_for(const std::string& what, std::uint64_t bytes) {
  const std::uint64_t available = available_memory();
  throw_if<DataError>(bytes > available,
                      "{} does not fit into memory: it needs {} bytes, {} bytes are available; use a smaller file or "
                      "data set, or a machine with more memory",
                      what, bytes, available);
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
