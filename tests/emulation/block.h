#pragma once
/// @file
/// Runs the blocks of a kernel on the CPU, one after the other. A block's threads are fibers: one runs until it meets
/// a barrier, then the next one does. That finds, for certain, what a GPU shows only sometimes:
///
/// - a barrier that not all threads of a block reach, or that is not the same one for all, is an error;
/// - shared memory begins as bytes 0xff (a float read before it is written is NaN), in a heap block of its own
///   (the address sanitizer finds an index outside it);
/// - without a barrier between them a thread's write and another's read are a whole pass apart, and the order of the
///   threads is reversed from block to block, so the results are wrong.
///
/// The threads of a warp wait for each other only where they say so: by __syncwarp, or by a call that exchanges values
/// (__shfl_xor_sync, tensor cores).
///
/// Not emulated: atomics, warps in step, and anything asynchronous: streams run in order.

#include <cuda_runtime.h>

#include <cstddef>
#include <source_location>

namespace stagecoach::cuda::emulation {

/// A callable without a copy of it.
struct Thread {
  const void* body;
  void (*call)(const void* body);
  void operator()() const { call(body); }
};

/// The limits of a GPU: cudaErrorInvalidConfiguration (empty, or too many threads) or cudaErrorInvalidValue.
cudaError_t check_launch(dim3 grid, dim3 block, std::size_t shared_bytes);
/// Runs `thread` for every thread of every block, which may share 48 KiB, or `shared_bytes` if that is more. Throws
/// Error that names the kernel.
void run(const void* kernel, dim3 grid, dim3 block, std::size_t shared_bytes, Thread thread);
/// The memory of the running thread's next shared object, aligned to `alignment` and to no more; the n-th request of
/// all threads of a block is the same one.
void* shared(std::size_t bytes, std::size_t alignment);

/// The running thread's number in its warp.
int lane();
/// What the 32 threads of the running thread's warp pass here, one after the other: `bytes` each, at most 64. Valid
/// until the warp's next exchange. An error unless the warp is whole, and all its threads call it.
const void* exchange(const void* mine, std::size_t bytes, const std::source_location& where);

}  // namespace stagecoach::cuda::emulation

/// Returns the value of the thread of this warp whose number differs in the bits of `mask`. All threads of the warp
/// call it.
template <class T>
T __shfl_xor_sync(unsigned /* threads */, T value, int mask,
                  std::source_location where = std::source_location::current()) {
  using namespace stagecoach::cuda::emulation;
  return static_cast<const T*>(exchange(&value, sizeof(value), where))[lane() ^ mask];
}
