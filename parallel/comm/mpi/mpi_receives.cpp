#include "parallel/comm/mpi/mpi_receives.h"

#include <algorithm>

#include "core/base/recycled.h"

namespace stagecoach {
namespace {

/// Cancels a request. Returns whether no message had arrived for it.
bool is_cancelled(MPI_Request& request) noexcept {
  int cancelled = 0;
  MPI_Status status{};
  if (request != MPI_REQUEST_NULL && MPI_Cancel(&request) == MPI_SUCCESS &&
      MPI_Wait(&request, &status) == MPI_SUCCESS) {  // does not block after MPI_Cancel
    MPI_Test_cancelled(&status, &cancelled);
  }
  return cancelled != 0;
}

}  // namespace

std::shared_ptr<MpiReceives::Posted> MpiReceives::post(const MpiAddress& from, const Tensor& tensor,
                                                       const ErrorContext& context) {
  const auto posted = std::allocate_shared_for_overwrite<Posted>(Recycled<Posted>());
  posted->world = &world_;
  posted->like = {"receive", tensor};
  posted->message.start(from, tensor, posted->requests, context);
  return posted;
}

void MpiReceives::Posted::answer(double completed_at) {
  MPI_Request request = MPI_REQUEST_NULL;
  const auto context = [] { return "acknowledging a message"; };
  MpiWorld::check(MPI_Isend(&completed_at, 1, MPI_DOUBLE, sender.rank, sender.tag, sender.comm, &request), context);
  world->wait({&request, 1}, {}, context);  // short, so MPI sends it eagerly
}

void MpiReceives::cancel(const std::shared_ptr<Posted>& posted) noexcept {
  if (posted->taken) {
    return;
  }
  posted->moving = nullptr;
  if (!world_.failed()) {
    withdraw(*posted);
  }
  // Later requests receive the messages after the header, in posting order, so without a header they have received
  // nothing.
  if (world_.failed() || !is_cancelled(posted->requests.front())) {
    return world_.leak_until_exit(posted);  // MPI may still write there
  }
  for (MPI_Request& request : std::span(posted->requests).subspan(1)) {
    is_cancelled(request);
  }
}

}  // namespace stagecoach
