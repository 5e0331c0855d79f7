#include "core/cuda_backend.h"
#include "core/error.h"

namespace stagecoach::cuda {

bool has_graphs() { return false; }

std::unique_ptr<Graph> record_graph(Device device, const std::function<void()>&) {
  throw UsageError(to_string(device) + ": the emulation has no graphs; use --no-graph");
}

}  // namespace stagecoach::cuda
