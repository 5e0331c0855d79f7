#include "parallel/wrappers/distributed_data_parallel.h"

#include <utility>

#include "core/autograd/backward.h"
#include "core/error.h"
#include "parallel/data_parallel/same_model.h"

namespace stagecoach {
namespace {

/// Returns the model's parameters, after all ranks have got the values of rank 0.
NamedTensors broadcast_parameters(const Module& model, Communicator& comm) {
  broadcast_module(model, comm);
  return model.named_parameters();
}

/// Returns the gradient of a summed loss for which the mean over `samples` is trained.
Tensor share_of_mean(const Tensor& loss, std::int64_t samples) {
  STAGECOACH_CHECK(samples >= 1, "DistributedDataParallel: expected at least 1 sample on all ranks, got {}", samples);
  return Tensor::full({}, 1.0 / static_cast<double>(samples), loss.dtype(), loss.device());
}

}  // namespace

DistributedDataParallel::DistributedDataParallel(Module& model, Communicator& comm, ReducerSettings settings)
    : model_(model), reducer_(broadcast_parameters(model, comm), comm, std::move(settings)) {}

void DistributedDataParallel::backward(const Tensor& loss, std::int64_t samples) {
  const Tensor share = share_of_mean(loss, samples);
  reducer_.begin(Reducer::Sync::yes, {&loss, 1});
  stagecoach::backward(loss, share);
  reducer_.finish();
}

void DistributedDataParallel::accumulate(const Tensor& loss, std::int64_t samples) {
  const Tensor share = share_of_mean(loss, samples);
  reducer_.begin(Reducer::Sync::no);
  stagecoach::backward(loss, share);
}

}  // namespace stagecoach
