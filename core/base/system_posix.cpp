#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <numeric>
#include <thread>

#include "core/base/system.h"

namespace stagecoach::system {
namespace {

/// Sets what every descriptor of this file has. Another thread that calls exec in between passes it on.
int prepared(int descriptor) {
  if (descriptor >= 0) {
    static_cast<void>(::fcntl(descriptor, F_SETFD, FD_CLOEXEC));
    static_cast<void>(::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK));
  }
  return descriptor;
}

int prepared_socket(int descriptor) {
  if (descriptor < 0) {
    return descriptor;  // with the errno of what failed
  }
#ifdef SO_NOSIGPIPE  // macOS has it in place of MSG_NOSIGNAL
  const int on = 1;
  static_cast<void>(::setsockopt(descriptor, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof(on)));
#endif
  return prepared(descriptor);
}

}  // namespace

#ifdef MSG_NOSIGNAL
const int kNoSignal = MSG_NOSIGNAL;
#else
const int kNoSignal = 0;
#endif

std::vector<int> usable_cores() {
  std::vector<int> cores(std::thread::hardware_concurrency());
  std::iota(cores.begin(), cores.end(), 0);
  return cores;
}

bool run_on_cores(const std::vector<int>&) { return false; }

std::function<std::int64_t()> processor_time_of_this_thread() { return {}; }

std::optional<std::uint64_t> free_memory() {
#ifdef _SC_PHYS_PAGES
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  if (pages > 0) {
    return static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  }
#endif
  return std::nullopt;
}

std::optional<std::uint64_t> address_space() { return std::nullopt; }

void give_back_freed_memory() {}

void prefer_large_pages(void*, std::size_t) {}

std::array<int, 2> open_wakeup() {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) {
    return {-1, -1};
  }
  return {prepared(ends[0]), prepared(ends[1])};
}

int open_tcp_socket() { return prepared_socket(::socket(AF_INET, SOCK_STREAM, 0)); }

int accept_connection(int listening) { return prepared_socket(::accept(listening, nullptr, nullptr)); }

std::string process_space() {
  std::array<char, 256> name{};
  static_cast<void>(::gethostname(name.data(), name.size() - 1));
  return fmt::format("{} {:x}", name.data(), static_cast<unsigned long>(::gethostid()));
}

int watch_process(int id) { return has_ended(id) ? -1 : id; }

bool has_ended(int process) { return ::kill(process, 0) != 0 && errno == ESRCH; }

}  // namespace stagecoach::system
