#pragma once
/// @file
/// The functions that the rest of the core needs from the CUDA backend (core/cuda). A build without CUDA links
/// `no_cuda.cpp`, in which every function throws UsageError with its name; callers need no preprocessor. All devices
/// here are of type cuda.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/stream.h"

namespace stagecoach {

class Allocator;
class Tensor;
template <class Result>
struct KernelTable;
using Kernels = KernelTable<void>;

namespace cuda {

/// Throws UsageError with the reason unless the GPU can be used.
void require_device(Device device);
/// Returns the number of GPUs. Throws UsageError with the reason if there is none.
int gpu_count();
/// Returns a text such as "NVIDIA H200, compute capability 9.0, driver for CUDA 13.0, runtime 13.0".
std::string description(Device device);
/// Returns whether the kernels run on the CPU, in the emulation of tests/emulation.
bool is_emulated();

/// Returns the allocator of the device. Throws UsageError unless the device can be used.
const std::shared_ptr<Allocator>& allocator(Device device);
/// Returns the device's allocator or, while this thread records work, the allocator of the recording.
std::shared_ptr<Allocator> allocator_for_tensors(Device device);
/// Returns an allocator of CPU memory that GPUs can copy from and to while the CPU continues. Driver calls that it
/// makes for the calling thread are made on `device`; otherwise the thread would start to use the first GPU as well.
const std::shared_ptr<Allocator>& pinned_allocator(Device device);

/// Returns the kernels of a GPU.
const Kernels& kernels();
/// Lets products of float32 matrices use tensor cores, which round the factors to 10 bits of fraction (TF32). Off by
/// default. Has no effect on GPUs without TF32 tensor cores (before compute capability 8.0).
void allow_tf32(bool on);
/// Returns whether products on `device` will use TF32.
bool uses_tf32(Device device);
/// Returns whether this program has instructions for warpgroups that `device` understands: it was compiled for sm_90a,
/// and the device has compute capability 9.0.
bool has_warpgroups(Device device);

/// Waits until all work submitted to `stream` is done. Throws Error if the GPU has failed meanwhile.
void synchronize(const Stream& stream);

/// Returns a mark of the point after the work submitted to `stream` so far.
std::shared_ptr<Mark> mark(const Stream& stream);
void wait(const Mark& mark, const Stream& stream);
void synchronize(const Mark& mark);

/// Copies on the copy stream, after the events `after`. Throws Error while work is being recorded.
void copy_async(void* to, Device to_device, const void* from, Device from_device, std::size_t bytes,
                const std::vector<Event>& after);

/// Work that was recorded as a CUDA graph.
class Graph {
 public:
  virtual ~Graph() = default;
  /// Submits the whole work to the compute stream at once.
  virtual void launch() = 0;
};
/// Records what `work` submits to the device's compute stream, without running it. Tensors that `work` creates use
/// memory of the recording. Throws Error if `work` waits for the device.
std::unique_ptr<Graph> record_graph(Device device, const std::function<void()>& work);
/// Returns whether the tensor's memory, on a GPU, belongs to a recording, which writes to the same addresses each time.
bool is_of_recording(const Tensor& tensor);

}  // namespace cuda
}  // namespace stagecoach
