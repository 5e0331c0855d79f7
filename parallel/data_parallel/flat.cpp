#include "parallel/data_parallel/flat.h"

#include "core/autograd/grad_mode.h"
#include "core/base/error.h"

namespace stagecoach {

Tensor flat_for(const std::vector<Tensor>& tensors) {
  STAGECOACH_CHECK(!tensors.empty(), "flat: expected at least one tensor, got none");
  std::int64_t count = 0;
  for (const Tensor& tensor : tensors) {
    count += tensor.numel();
  }
  return Tensor::empty({count}, tensors[0].dtype(), tensors[0].device());
}

Tensor flattened(const std::vector<Tensor>& tensors) {
  const Tensor flat = flat_for(tensors);
  std::vector<Tensor> views = views_of(flat, tensors);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    views[i].copy_from(tensors[i]);
  }
  return flat;
}

std::vector<Tensor> views_of(const Tensor& flat, const std::vector<Tensor>& like) {
  std::vector<Tensor> views;
  std::int64_t offset = 0;
  for (const Tensor& tensor : like) {
    views.push_back(flat.alias(tensor.shape(), offset));
    offset += tensor.numel();
  }
  return views;
}

Tensor padded(const Tensor& flat, int parts) {
  const std::int64_t part = (flat.numel() + parts - 1) / parts;
  Tensor all = Tensor::zeros({parts * part}, flat.dtype(), flat.device());
  all.narrow(0, flat.numel()).copy_from(flat);
  return all;
}

void unflatten_into(const Tensor& flat, const std::vector<Tensor>& tensors) {
  const NoGrad no_grad;
  const std::vector<Tensor> views = views_of(flat, tensors);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    Tensor into = tensors[i];
    into.copy_from(views[i]);
  }
}

std::vector<Tensor> tensors_of(const NamedTensors& named) {
  std::vector<Tensor> tensors;
  for (const auto& [name, tensor] : named) {
    tensors.push_back(tensor);
  }
  return tensors;
}

std::vector<Tensor> gradients_of(const NamedTensors& parameters) {
  std::vector<Tensor> gradients;
  for (const auto& [name, parameter] : parameters) {
    gradients.push_back(parameter.grad());
  }
  return gradients;
}

double bytes_of(const NamedTensors& named) {
  double bytes = 0;
  for (const auto& [name, tensor] : named) {
    bytes += static_cast<double>(tensor.bytes());
  }
  return bytes;
}

}  // namespace stagecoach
