#include "parallel/wrappers/distributed_data_parallel.h"

#include <utility>

#include "core/autograd/backward.h"
#include "core/base/error.h"
#include "parallel/data_parallel/same_model.h"
#include "parallel/wrappers/share_of_mean.h"

namespace stagecoach {
namespace {

/// Returns the model's parameters, after all ranks have got the values of rank 0.
NamedTensors broadcast_parameters(const Module& model, Communicator& comm) {
  broadcast_module(model, comm);
  return model.named_parameters();
}

}  // namespace

DistributedDataParallel::DistributedDataParallel(Module& model, Communicator& comm, ReducerSettings settings)
    : model_(model), device_(comm.device()), reducer_(broadcast_parameters(model, comm), comm, std::move(settings)) {}

Tensor DistributedDataParallel::forward(const Tensor& x) {
  STAGECOACH_CHECK(x.defined() && x.device() == device_,
                   "DistributedDataParallel: expected an input on this rank's device {}, got {}; use x.to(rank.device)",
                   to_string(device_), describe(x));
  return model_.forward(x);
}

void DistributedDataParallel::require_working() const {
  STAGECOACH_CHECK(!has_failed_,
                   "DistributedDataParallel: an earlier backward failed, so the gradients of the ranks differ; end the "
                   "program and resume from a checkpoint");
}

void DistributedDataParallel::backward(const Tensor& loss, std::int64_t samples) {
  require_working();
  const Tensor share = share_of_mean("DistributedDataParallel", loss, samples);
  reducer_.begin(Reducer::Sync::yes, {&loss, 1});
  has_failed_ = true;  // unless all of the following is done
  stagecoach::backward(loss, share);
  reducer_.finish();
  has_failed_ = false;
}

void DistributedDataParallel::accumulate(const Tensor& loss, std::int64_t samples) {
  require_working();
  const Tensor share = share_of_mean("DistributedDataParallel", loss, samples);
  reducer_.begin(Reducer::Sync::no);
  stagecoach::backward(loss, share);
}

}  // namespace stagecoach
