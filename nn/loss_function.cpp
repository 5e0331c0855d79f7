#include "nn/loss_function.h"

#include "core/autograd/grad_mode.h"
#include "core/base/error.h"

namespace stagecoach {

Tensor LossFunction::operator()(const Tensor& output, const Tensor& target, Tensor* predictions) const {
  Tensor loss = loss_(output, target, predictions);
  STAGECOACH_CHECK(loss.defined() && loss.dims() == 0,
                   "loss function: expected a scalar [], got {}; return the mean or the sum over the samples",
                   describe(loss));
  STAGECOACH_CHECK(loss.requires_grad() || !output.requires_grad() || !grad_enabled(),
                   "loss function: expected a loss computed from the output, got one without a graph; compute it with "
                   "operations (core/ops.h), without NoGrad and detach()");
  return loss;
}

}  // namespace stagecoach
