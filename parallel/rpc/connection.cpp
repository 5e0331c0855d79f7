#include "parallel/rpc/connection.h"

#include "core/error.h"
#include "core/throw_if.h"
#include "parallel/rpc/master.h"

namespace stagecoach::rpc {

void Connection::require_worker(int rank) const {
  throw_if<UsageError>(rank < 1 || rank > workers(),
                       "remote call to rank {}: expected a worker, from 1 to {}; rank 0 is the master", rank,
                       workers());
  throw_if<Error>(!is_open_, "remote call to rank {}: the workers have been shut down; call them before", rank);
}

void Connection::tell(int rank, const Command& command) {
  require_worker(rank);
  for (const Command& earlier : std::exchange(later_[static_cast<std::size_t>(rank)], {})) {
    outbox_.send(earlier, rank);
  }
  outbox_.send(command, rank);
}

Answer Connection::ask(int rank, const Command& command) {
  tell(rank, command);
  return expected_[static_cast<std::size_t>(rank)].emplace_back(std::make_shared<std::optional<Value>>());
}

const Value& Connection::value(int rank, const Answer& answer) {
  auto& expected = expected_[static_cast<std::size_t>(rank)];
  while (!answer->has_value()) {
    *expected.front() = receive_value(comm_, rank);
    expected.pop_front();
  }
  return **answer;
}

Tensor Connection::wait(int rank, const Answer& answer) {
  const Value& come = value(rank, answer);
  throw_if<RemoteError>(!come.error.empty(), "{}", come.error);
  return come.tensor;
}

void Connection::shut_down() {
  if (!is_open_) {
    return;
  }
  for (int rank = 1; rank <= workers(); ++rank) {
    while (!expected_[static_cast<std::size_t>(rank)].empty()) {
      static_cast<void>(value(rank, expected_[static_cast<std::size_t>(rank)].back()));
    }
    tell(rank, {.task = Task::shut_down});
  }
  outbox_.wait();
  is_open_ = false;
}

}  // namespace stagecoach::rpc
