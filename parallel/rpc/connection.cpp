#include "parallel/rpc/connection.h"

#include "core/error.h"
#include "core/throw_if.h"
#include "parallel/rpc/master.h"

namespace stagecoach::rpc {
namespace {

constexpr std::size_t kMaxUnread = 128;  // answers of a worker

}  // namespace

void Connection::require_worker(int rank) const {
  throw_if<UsageError>(rank < 1 || rank > workers(),
                       "remote call to rank {}: expected a worker, from 1 to {}; rank 0 is the master", rank,
                       workers());
  throw_if<Error>(!is_open_, "remote call to rank {}: the workers have been shut down; call them before", rank);
}

void Connection::tell(int rank, const Command& command) {
  require_worker(rank);
  for (const Command& earlier : std::exchange(to(rank).later, {})) {
    outbox_.send(earlier, rank);
  }
  outbox_.send(command, rank);
  to(rank).told = std::chrono::steady_clock::now();
  keep_alive();
}

void Connection::keep_alive() {
  const auto now = std::chrono::steady_clock::now();
  for (int rank = 1; rank <= workers(); ++rank) {
    if (now - to(rank).told > silence_) {
      outbox_.send(Command{.task = Task::keep_alive}, rank);
      to(rank).told = now;
    }
  }
}

Answer Connection::ask(int rank, const Command& command) {
  tell(rank, command);
  auto& expected = to(rank).expected;
  const Answer answer = expected.emplace_back(std::make_shared<std::optional<Value>>());
  if (expected.size() > kMaxUnread) {
    static_cast<void>(value(rank, Answer(expected.front())));
  }
  return answer;
}

const Value& Connection::value(int rank, const Answer& answer) {
  auto& expected = to(rank).expected;
  while (!answer->has_value()) {
    keep_alive();
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
    while (!to(rank).expected.empty()) {
      static_cast<void>(value(rank, Answer(to(rank).expected.back())));
    }
  }
  while (!outbox_.empty()) {  // command by command, so that the deadline is that of one, not of all that are queued
    keep_alive();
    outbox_.wait_for_first();
  }
  for (int rank = 1; rank <= workers(); ++rank) {
    tell(rank, {.task = Task::shut_down});
  }
  outbox_.wait();
  is_open_ = false;
}

}  // namespace stagecoach::rpc
