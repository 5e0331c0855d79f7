#pragma once
/// @file
/// What each operating system does in its own way. system_linux.cpp is for Linux; system_posix.cpp is for all others,
/// with no more than POSIX and what macOS has (-DSTAGECOACH_SYSTEM=posix builds it on Linux, too). No other file of the
/// libraries calls what only one system has.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace stagecoach::system {

/// Returns the cores that this process may use: those of its main thread, because other threads may be pinned to a
/// single core. On a system that cannot pin threads: as many numbers as the machine has cores. Empty if the system does
/// not report them.
std::vector<int> usable_cores();

/// Restricts the calling thread to `cores`. Returns false if the system refuses or cannot do it; then the thread runs
/// on any core.
bool run_on_cores(const std::vector<int>& cores);

/// Returns a function by which any thread can read the nanoseconds of processor time that the calling thread has used,
/// while that thread lives; an empty one if the system does not report it.
std::function<std::int64_t()> processor_time_of_this_thread();

/// Returns how many bytes this process can still use: the minimum of the machine's free memory (swap included) and
/// what its control group still allows. If the system does not report free memory, returns the machine's total memory;
/// nothing if it does not report that either.
std::optional<std::uint64_t> free_memory();
/// Returns the size of the process's address space in bytes, which `ulimit -v` limits, or nothing if the system does
/// not report it.
std::optional<std::uint64_t> address_space();
/// Gives the system what the C library keeps of freed memory, where it can be asked to.
void give_back_freed_memory();
/// Asks for large pages in `bytes` bytes at `memory`, because they cost fewer TLB misses. A hint.
void prefer_large_pages(void* memory, std::size_t bytes);

/// Returns two descriptors, for reading and for writing, both closed by exec and non-blocking: what is written to the
/// second makes the first readable. They may be the same one. Both are -1 if the system has no more descriptors.
std::array<int, 2> open_wakeup();
/// Returns a TCP socket for IPv4, closed by exec and non-blocking, or -1 with errno. Sending to a lost peer fails with
/// EPIPE and raises no signal, if the flags of send() include kNoSignal.
int open_tcp_socket();
/// Returns the next connection of a listening socket, with the same properties, or -1 with errno.
int accept_connection(int listening);
extern const int kNoSignal;

/// Returns the name of this process's PID namespace: two processes share it if they see each other's process ids.
std::string process_space();
/// Returns a handle of a process in the same PID namespace, or -1 if there is none, or the system cannot provide one.
int watch_process(int id);
/// Returns whether the process of a handle has ended. Without support of the system, one that has ended counts as
/// running until its parent has waited for it, and one whose id is used again counts as running.
bool has_ended(int process);

}  // namespace stagecoach::system
