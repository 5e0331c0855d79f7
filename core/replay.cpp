#include "core/replay.h"

#include <algorithm>
#include <utility>

#include "core/cuda_backend.h"

namespace stagecoach {

/// The recording for one set of shapes and types.
struct Replay::Recording {
  std::vector<Tensor> inputs;  // read by the recorded work; created in the second run
  std::vector<std::pair<Shape, DType>> kinds;
  std::unique_ptr<cuda::Graph> graph;
};

Replay::Replay(Device device, bool enabled) : device_(device), enabled_(enabled && device.type == DeviceType::cuda) {}

Replay::~Replay() = default;

Replay::Recording& Replay::recording_of(const std::vector<Tensor>& inputs) {
  std::vector<std::pair<Shape, DType>> kinds;
  for (const Tensor& input : inputs) {
    kinds.emplace_back(input.shape(), input.dtype());
  }
  const auto found = std::find_if(recordings_.begin(), recordings_.end(),
                                  [&](const auto& recording) { return recording->kinds == kinds; });
  if (found != recordings_.end()) {
    return **found;
  }
  recordings_.push_back(std::make_unique<Recording>());
  recordings_.back()->kinds = std::move(kinds);
  return *recordings_.back();
}

void Replay::run(const std::vector<Tensor>& inputs, const Work& work) {
  if (!enabled_) {
    return work(inputs);
  }
  const std::size_t known = recordings_.size();
  Recording& recording = recording_of(inputs);
  if (recordings_.size() > known) {
    return work(inputs);  // the first run loads kernels and makes one-time allocations
  }
  if (recording.graph == nullptr) {
    recording.inputs.clear();
    for (const Tensor& input : inputs) {
      recording.inputs.push_back(input.clone());
    }
    recording.graph = cuda::record_graph(device_, [&] { work(recording.inputs); });
  } else {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      recording.inputs[i].copy_from(inputs[i]);
    }
  }
  recording.graph->launch();
}

}  // namespace stagecoach
