#include "parallel/data_parallel/average_gradients.h"

#include <cstring>

#include "core/autograd/grad_mode.h"
#include "core/base/error.h"
#include "core/kernels/kernels.h"

namespace stagecoach {

void average_gradients(const NamedTensors& parameters, int batches, Communicator& replicas) {
  const NoGrad no_grad;
  for (const auto& named : parameters) {
    Tensor parameter = named.second;
    Tensor gradient = parameter.grad();
    if (!gradient.defined()) {  // this replica has had no micro-batch since the last update
      gradient = Tensor::zeros(parameter.shape(), parameter.dtype(), parameter.device());
      parameter.set_grad(gradient);
    }
    if (replicas.size() > 1) {
      replicas.all_reduce(gradient);
    }
    if (batches > 1) {
      kernels(gradient.device()).scale(gradient, 1.0 / batches, gradient);
    }
  }
}

void require_equal_replicas(const NamedTensors& parameters, Communicator& replicas) {
  if (replicas.size() == 1) {
    return;
  }
  for (const auto& [name, parameter] : parameters) {
    const Tensor mine = parameter.to(Device{});
    for (const Tensor& each : replicas.all_gather(parameter)) {
      const Tensor theirs = each.to(Device{});
      STAGECOACH_CHECK(std::memcmp(theirs.raw_data(), mine.raw_data(), mine.bytes()) == 0,
                       "replicas: expected '{}' to be equal on all ranks of the stage, got different bytes", name);
    }
  }
}

}  // namespace stagecoach
