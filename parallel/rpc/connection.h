#pragma once
/// @file
/// The master's side of the messages to its workers.

#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "parallel/rpc/endpoint.h"

namespace stagecoach::rpc {

/// The answer of a worker, once it has arrived. A worker's answers arrive in the order of its commands.
using Answer = std::shared_ptr<std::optional<Value>>;

/// Shared by the master and all that refers to its workers.
class Connection {
 public:
  /// Collective over `comm`, as are the workers' constructors. `timeout` is that of the world, in seconds.
  Connection(Communicator& comm, double timeout)
      : endpoint_(comm, timeout, Heartbeat::Beats::while_used), to_(static_cast<std::size_t>(comm.size())) {}

  Device device() const { return endpoint_.device(); }
  int workers() const { return endpoint_.size() - 1; }
  /// Throws UsageError unless `rank` is that of a worker; and Error after shut_down().
  void require_worker(int rank) const;
  /// Returns the first of `count` new numbers.
  Id new_ids(Id count = 1) { return std::exchange(next_, next_ + count); }

  /// Sends commands, as one message if they are short.
  void tell(int rank, std::vector<Command> commands);
  void tell(int rank, Command command) { tell(rank, std::vector{std::move(command)}); }
  /// Sends the command before the next one to this rank: for destructors, which must not fail.
  void tell_later(int rank, const Command& command) { to(rank).later.push_back(command); }
  /// Lets the rank forget a value, likewise.
  void drop_later(int rank, Id id);
  /// Sends commands, one of which has an answer that is then to be waited for. Waits itself if very many answers of
  /// this rank have not been read, as when nobody waits for them.
  Answer ask(int rank, std::vector<Command> commands);
  Answer ask(int rank, Command command) { return ask(rank, std::vector{std::move(command)}); }
  /// Waits for the answer of rank `rank`. Throws RemoteError if it is an error; CommError if the rank shows no sign of
  /// life for the timeout of the world, or if a rank has failed.
  Value wait(int rank, const Answer& answer);

  /// Returns what rank `rank` has done, which may be the master. Waits for a worker.
  Report report(int rank);

  /// Ends the workers after all earlier commands. A second call does nothing.
  void shut_down();

 private:
  struct Worker {
    std::deque<Answer> expected = {};
    std::vector<Command> later = {};
  };
  Worker& to(int rank) { return to_[static_cast<std::size_t>(rank)]; }
  const Value& value(int rank, const Answer& answer);

  Endpoint endpoint_;
  std::vector<Worker> to_;  // by rank
  Id next_ = 1;
  bool is_open_ = true;
};

}  // namespace stagecoach::rpc
