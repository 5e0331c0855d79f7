#include "parallel/average_gradients.h"

#include "core/autograd/grad_mode.h"
#include "core/kernels/kernels.h"

namespace stagecoach {

void average_gradients(const NamedTensors& parameters, int batches, Communicator& replicas) {
  const NoGrad no_grad;
  for (const auto& named : parameters) {
    Tensor parameter = named.second;
    Tensor gradient = parameter.grad();
    if (!gradient.defined()) {  // this replica had no micro-batch since the last update
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

}  // namespace stagecoach
