#include "core/base/error.h"
#include "core/cuda_backend.h"

namespace stagecoach::cuda {

class Mark {};

namespace {

[[noreturn]] void absent(const std::string& what) {
  throw UsageError(
      fmt::format("{}: this build has no CUDA backend; use device `cpu`, or build with scripts/build.sh cuda", what));
}

}  // namespace

void require_device(Device device) { absent(to_string(device)); }
int gpu_count() { absent("cuda"); }
std::string description(Device device) { absent("description of " + to_string(device)); }
bool is_emulated() { return false; }
const std::shared_ptr<Allocator>& allocator(Device device) { absent("allocator of " + to_string(device)); }
std::shared_ptr<Allocator> allocator_for_tensors(Device device) { absent("allocator of " + to_string(device)); }
const std::shared_ptr<Allocator>& pinned_allocator(Device) { absent("pinned memory for cuda"); }
const Kernels& kernels() { absent("kernels of cuda"); }
void allow_tf32(bool) { absent("TF32 on cuda"); }
bool uses_tf32(Device) { return false; }
bool has_warpgroups(Device) { return false; }
void synchronize(const Stream& stream) { absent("stream of " + to_string(stream.device)); }
std::shared_ptr<Mark> mark(const Stream& stream) { absent("event on " + to_string(stream.device)); }
void wait(const Mark&, const Stream& stream) { absent("event on " + to_string(stream.device)); }
void synchronize(const Mark&) { absent("event of cuda"); }
void copy_async(void*, Device to_device, const void*, Device, std::size_t, const std::vector<Event>&) {
  absent("copy to " + to_string(to_device));
}
std::unique_ptr<Graph> record_graph(Device device, const std::function<void()>&) {
  absent("graph on " + to_string(device));
}
bool is_of_recording(const Tensor&) { absent("recording on cuda"); }

}  // namespace stagecoach::cuda
