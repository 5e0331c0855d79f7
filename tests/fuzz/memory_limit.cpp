#include "tests/fuzz/memory_limit.h"

#ifdef STAGECOACH_HAS_ASAN

#include <atomic>
#include <cstdio>
#include <cstdlib>

// Of the sanitizers' allocator_interface.h and common_interface_defs.h, which GCC's packages leave out in part.
extern "C" {
int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void*, std::size_t),
                                              void (*on_free)(const volatile void*));
std::size_t __sanitizer_get_allocated_size(const volatile void* memory);
void __sanitizer_print_stack_trace();
}

namespace stagecoach::fuzz {
namespace {

std::atomic<std::ptrdiff_t> live{0};  // bytes more than at the start; what was there before is freed below 0
std::ptrdiff_t limit = 0;

void on_allocation(const volatile void*, std::size_t bytes) {
  const auto size = static_cast<std::ptrdiff_t>(bytes);
  if (live.fetch_add(size) + size > limit) {
    limit = PTRDIFF_MAX;  // what is printed allocates too
    std::fprintf(stderr, "memory beyond the limit: %zu bytes were asked for\n", bytes);
    __sanitizer_print_stack_trace();
    std::abort();
  }
}

void on_free(const volatile void* memory) {
  live.fetch_sub(static_cast<std::ptrdiff_t>(__sanitizer_get_allocated_size(memory)));
}

}  // namespace

void limit_memory(std::size_t bytes) {
  limit = static_cast<std::ptrdiff_t>(bytes);
  static_cast<void>(__sanitizer_install_malloc_and_free_hooks(on_allocation, on_free));
}

}  // namespace stagecoach::fuzz

#else

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

namespace stagecoach::fuzz {

void limit_memory(std::size_t bytes) {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t all = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) + bytes;
  const rlimit limit{all, all};
  static_cast<void>(::setrlimit(RLIMIT_AS, &limit));
}

}  // namespace stagecoach::fuzz

#endif
