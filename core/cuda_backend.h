#pragma once
/// @file
/// What the rest of the core asks of the CUDA backend (core/cuda). A build without CUDA links `no_cuda.cpp`, in which
/// every function throws UsageError by name; callers need no preprocessor. All devices here are of type cuda.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/stream.h"

namespace stagecoach {

class Allocator;
struct Kernels;

namespace cuda {

/// Throws UsageError, saying why, unless the GPU can be used.
void require_device(Device device);
/// How many GPUs there are. Throws UsageError, saying why, unless there is one.
int gpu_count();
/// "NVIDIA H200, compute capability 9.0, driver for CUDA 13.0, runtime 13.0".
std::string description(Device device);
/// True when the kernels run on the CPU, by tests/emulation.
bool is_emulated();

/// The allocator of the device. Throws UsageError unless it can be used.
const std::shared_ptr<Allocator>& allocator(Device device);
/// The same, or the memory of the recording that this thread is making.
std::shared_ptr<Allocator> allocator_for_tensors(Device device);
/// CPU memory that GPUs can copy from and to while the CPU goes on. What the calling thread asks it for is asked of
/// `device`: else it would begin to use the first GPU, too.
const std::shared_ptr<Allocator>& pinned_allocator(Device device);

/// The operations of a GPU.
const Kernels& kernels();
/// Lets products of float32 matrices use tensor cores, which round the factors to 10 bits (TF32). Off at first.
/// Without tensor cores of that kind (before compute capability 8.0) it changes nothing.
void allow_tf32(bool on);
/// Whether products on `device` will use them.
bool uses_tf32(Device device);

/// Returns when all work given to `stream` is done. Throws Error when the GPU has failed meanwhile.
void synchronize(const Stream& stream);

/// A point in a stream's work.
std::shared_ptr<Mark> mark(const Stream& stream, bool timed);
void wait(const Mark& mark, const Stream& stream);
void synchronize(const Mark& mark);
double seconds_between(const Mark& start, const Mark& end);

/// Copies on the copy stream, after the events `after`. Throws Error within work that is recorded.
void copy_async(void* to, Device to_device, const void* from, Device from_device, std::size_t bytes,
                const std::vector<Event>& after);

/// Work that was recorded as a CUDA graph.
class Graph {
 public:
  virtual ~Graph() = default;
  /// Gives the whole work to the compute stream at once.
  virtual void launch() = 0;
};
/// Records what `work` gives to the device's compute stream, without running it. Tensors that `work` makes live in
/// memory of the recording. Throws Error when `work` waits for the device.
std::unique_ptr<Graph> record_graph(Device device, const std::function<void()>& work);

}  // namespace cuda
}  // namespace stagecoach
