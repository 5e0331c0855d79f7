#include "parallel/rpc/connection.h"

#include <iterator>

#include "core/base/error.h"
#include "core/base/throw_if.h"
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

void Connection::tell(int rank, std::vector<Command> commands) {
  require_worker(rank);
  std::vector<Command> all = std::exchange(to(rank).later, {});
  all.insert(all.end(), std::make_move_iterator(commands.begin()), std::make_move_iterator(commands.end()));
  endpoint_.send(all, rank);
}

Answer Connection::ask(int rank, std::vector<Command> commands) {
  tell(rank, std::move(commands));
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
    *expected.front() = endpoint_.receive_value(rank);
    expected.pop_front();
  }
  return **answer;
}

Value Connection::wait(int rank, const Answer& answer) {
  const Value& arrived = value(rank, answer);
  if (const auto* failure = std::get_if<Failure>(&arrived)) {
    throw RemoteError(failure->text);
  }
  return arrived;
}

Report Connection::report(int rank) {
  return rank == 0 ? endpoint_.report() : Report::from(as<Tensor>(wait(rank, ask(rank, {.task = Task::report})), 0));
}

void Connection::drop_later(int rank, Id id) {
  std::vector<Command>& later = to(rank).later;
  if (later.empty() || later.back().task != Task::drop) {
    later.push_back({.task = Task::drop});
  }
  later.back().arguments.emplace_back(Reference{id});
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
  for (int rank = 1; rank <= workers(); ++rank) {
    tell(rank, {.task = Task::shut_down});
  }
  endpoint_.end();
  is_open_ = false;
}

}  // namespace stagecoach::rpc
