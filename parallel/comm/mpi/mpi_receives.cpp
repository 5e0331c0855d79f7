#include "parallel/comm/mpi/mpi_receives.h"

#include <algorithm>
#include <utility>

namespace stagecoach {
namespace {

bool is_done(MPI_Request& request) {
  int done = 0;
  MpiWorld::check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), [] { return "a message that is expected"; });
  return done != 0;
}

/// Whether no message had come for it.
bool is_cancelled(MPI_Request& request) noexcept {
  int cancelled = 0;
  MPI_Status status{};
  if (request != MPI_REQUEST_NULL && MPI_Cancel(&request) == MPI_SUCCESS &&
      MPI_Wait(&request, &status) == MPI_SUCCESS) {  // local, once cancelled
    MPI_Test_cancelled(&status, &cancelled);
  }
  return cancelled != 0;
}

}  // namespace

std::shared_ptr<MpiReceives::Posted> MpiReceives::post(const MpiAddress& from, const Tensor& tensor,
                                                       const MpiWorld::ErrorContext& doing) {
  std::shared_ptr<Posted> posted;
  if (spare_.empty()) {
    posted = std::make_shared_for_overwrite<Posted>();
  } else {
    posted = std::move(spare_.back());
    spare_.pop_back();
  }
  posted->direction = nullptr;
  posted->matched = false;
  posted->requests.clear();
  posted->message.start(from, tensor, posted->requests, doing);
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
  // order; one that comes during a poll, before another that the same poll finds, is found by the next.
  std::vector<std::shared_ptr<Posted>> come;
  for (bool more = true; more;) {
    more = false;
    std::erase_if(expected_, [&](const std::shared_ptr<Posted>& posted) {
      const bool has_come = is_done(posted->requests.front());
      if (has_come) {
        come.push_back(posted);
        more = true;
      }
      return has_come;
    });
  }
  std::sort(come.begin(), come.end(), [](const auto& a, const auto& b) {
    return a->message.header().send.number < b->message.header().send.number;
  });
  for (const auto& posted : come) {
    answer(*posted);
  }
}

void MpiReceives::answer(Posted& posted) {
  posted.arrival = posted.direction->match(posted.message.header().send, posted.post);
  posted.matched = true;
  const double completed_at = std::max(posted.arrival, posted.post.time);
  const MpiAddress& to = posted.answer;
  MPI_Request request = MPI_REQUEST_NULL;
  const auto context = [] { return "an answer to a sender"; };
  MpiWorld::check(MPI_Isend(&completed_at, 1, MPI_DOUBLE, to.rank, to.tag, to.comm, &request), context);
  world_.wait({&request, 1}, {}, context);  // short: MPI has it at once
}

Tensor MpiReceives::finish(const std::shared_ptr<Posted>& posted) {
  spare_.push_back(posted);
  return posted->message.end();
}

void MpiReceives::cancel(const std::shared_ptr<Posted>& posted) noexcept {
  if (posted->direction != nullptr && !posted->matched && !world_.failed()) {
    try {
      advance();                  // its sender may wait for an answer
    } catch (const CommError&) {  // of another message: its wait will find out
    }
    std::erase(expected_, posted);
  }
  // The requests after the first get what follows the header, in the order of posting: nothing, if that has not come.
  if (world_.failed() || !is_cancelled(posted->requests.front())) {
    return world_.leak_until_exit(posted);  // MPI may still write there
  }
  for (MPI_Request& request : std::span(posted->requests).subspan(1)) {
    is_cancelled(request);
  }
  if (posted->direction != nullptr) {
    posted->direction->cancel(posted->post);
  }
  static_cast<void>(finish(posted));
}

}  // namespace stagecoach
