#include "parallel/comm/keep_alive.h"

namespace stagecoach {

void KeepAlive::during(const std::function<void()>& body) {
  if (comm_.size() == 1) {
    return body();
  }
  if (!thread_) {
    comm_.barrier();  // MPI makes a thread's communicator without a deadline, so every rank must be here
    thread_.emplace(comm_);
  }
  Heartbeat heartbeat(*thread_, comm_, timeout_, Heartbeat::Beats::while_running, longest_call_);
  {
    const auto awaits = heartbeat.await_all();
    body();
    comm_.barrier();  // here, because its deadline is renewed
  }
  heartbeat.end();
}

}  // namespace stagecoach
