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
  posted->like = {"receive", tensor};
  posted->message.start(from, tensor, posted->requests, context);
  return posted;
}

void MpiReceives::expect(const std::shared_ptr<Posted>& posted, LinkDirection& direction, double now,
                         const MpiAddress& answer) {
  posted->direction = &direction;
  posted->post = direction.post(now);
  posted->answer = answer;
  expected_.push_back(posted);
}

void MpiReceives::advance() {
  // Messages of one direction are matched in the order in which they were sent. MPI returns their headers in that
  // order; an earlier message that arrives during a poll, after its own request was checked, is found by the next poll.
  std::vector<std::shared_ptr<Posted>> arrived;
  for (bool more = true; more;) {
    more = false;
    std::erase_if(expected_, [&](const std::shared_ptr<Posted>& posted) {
      const bool has_arrived = world_.are_done({&posted->requests.front(), 1});
      if (has_arrived) {
        arrived.push_back(posted);
        more = true;
      }
      return has_arrived;
    });
  }
  std::sort(arrived.begin(), arrived.end(), [](const auto& a, const auto& b) {
    return a->message.header().send.number < b->message.header().send.number;
  });
  for (const auto& posted : arrived) {
    answer(*posted);
  }
}

void MpiReceives::answer(Posted& posted) {
  posted.arrival = posted.direction->match(posted.message.header().send, posted.post);
  posted.matched = true;
  const double completed_at = std::max(posted.arrival, posted.post.time);
  const MpiAddress& to = posted.answer;
  MPI_Request request = MPI_REQUEST_NULL;
  const auto context = [] { return "acknowledging a message"; };
  MpiWorld::check(MPI_Isend(&completed_at, 1, MPI_DOUBLE, to.rank, to.tag, to.comm, &request), context);
  world_.wait({&request, 1}, {}, context);  // short, so MPI sends it eagerly
}

void MpiReceives::cancel(const std::shared_ptr<Posted>& posted) noexcept {
  if (posted->taken) {
    return;
  }
  posted->moving = nullptr;
  if (posted->direction != nullptr && !posted->matched && !world_.failed()) {
    try {
      advance();                  // the sender may be waiting for an answer
    } catch (const CommError&) {  // about another message, whose own wait will report it
    }
    std::erase(expected_, posted);
  }
  // Later requests receive the messages after the header, in posting order, so without a header they have received
  // nothing.
  if (world_.failed() || !is_cancelled(posted->requests.front())) {
    return world_.leak_until_exit(posted);  // MPI may still write there
  }
  for (MPI_Request& request : std::span(posted->requests).subspan(1)) {
    is_cancelled(request);
  }
  if (posted->direction != nullptr) {
    posted->direction->cancel(posted->post);
  }
}

}  // namespace stagecoach
