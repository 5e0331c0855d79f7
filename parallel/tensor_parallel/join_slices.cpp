#include "parallel/tensor_parallel/join_slices.h"

#include <algorithm>

namespace stagecoach {
namespace {

/// Returns the slice that the tensor `name` is a slice or the whole of, by its name and `shape`; null if it is neither.
template <class ShapeOf>
const TensorSlice* find(const NamedSlices& slices, const std::string& name, const Shape& shape, ShapeOf shape_of) {
  const auto found = std::find_if(slices.begin(), slices.end(), [&](const auto& named) {
    const auto& [parameter, slice] = named;
    return (name == parameter || name.starts_with(parameter + ".")) && shape == shape_of(slice);
  });
  return found == slices.end() ? nullptr : &found->second;
}

}  // namespace

NamedTensors join_slices(const NamedTensors& tensors, const NamedSlices& slices, Communicator& comm) {
  NamedTensors joined;
  for (const auto& [name, tensor] : tensors) {
    const TensorSlice* mine =
        find(slices, name, tensor.shape(), [](const TensorSlice& slice) { return slice.shape(); });
    if (mine == nullptr) {
      joined.emplace_back(name, tensor);
      continue;
    }
    const std::vector<Tensor> parts = comm.all_gather(tensor.detach());
    if (comm.rank() != 0) {
      continue;
    }
    const Tensor whole = Tensor::empty(mine->whole, tensor.dtype(), tensor.device());
    TensorSlice slice = *mine;
    for (slice.index = 0; slice.index < slice.parts; ++slice.index) {
      paste(parts[static_cast<std::size_t>(slice.index)], slice, whole);
    }
    joined.emplace_back(name, whole);
  }
  return comm.rank() == 0 ? joined : NamedTensors{};
}

NamedTensors cut_slices(const NamedTensors& whole, const NamedSlices& slices) {
  NamedTensors mine;
  for (const auto& [name, tensor] : whole) {
    const TensorSlice* slice = find(slices, name, tensor.shape(), [](const TensorSlice& one) { return one.whole; });
    mine.emplace_back(name, slice == nullptr ? tensor : cut(tensor, *slice));
  }
  return mine;
}

}  // namespace stagecoach
