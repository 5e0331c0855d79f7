#pragma once
/// @file
/// The master's side of the messages to its workers.

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "parallel/rpc/message.h"

namespace stagecoach::rpc {

/// The answer of a worker, once it has come. A worker's answers come in the order of its commands.
using Answer = std::shared_ptr<std::optional<Value>>;

/// Shared by the master and all that refers to its workers. While the master tells or waits for some workers, the
/// others get a keep-alive from time to time, so that they do not take it for dead.
class Connection {
 public:
  /// `timeout` is that of the world, in seconds.
  Connection(Communicator& comm, double timeout)
      : comm_(comm), outbox_(comm), silence_(timeout / 8), to_(static_cast<std::size_t>(comm.size())) {}

  Device device() const { return comm_.device(); }
  int workers() const { return comm_.size() - 1; }
  /// Throws UsageError unless `rank` is that of a worker; and Error after shut_down().
  void require_worker(int rank) const;
  /// Returns the first of `count` new numbers.
  Id new_ids(Id count = 1) { return std::exchange(next_, next_ + count); }

  void tell(int rank, const Command& command);
  /// Sends the command before the next one to this rank: for destructors, which must not fail.
  void tell_later(int rank, const Command& command) { to(rank).later.push_back(command); }
  /// Sends a command whose answer is then to be waited for. Waits itself if very many answers of this rank have not
  /// been read, as when nobody waits for them.
  Answer ask(int rank, const Command& command);
  /// Sends a value after a command to receive it.
  void send(int rank, const Value& value) { outbox_.send(value, rank); }
  /// Waits for the answer of rank `rank`. Throws RemoteError if it is an error; CommError after the timeout of the
  /// world, or if a rank has failed.
  Tensor wait(int rank, const Answer& answer);

  /// Ends the workers after all earlier commands. A second call does nothing.
  void shut_down();

 private:
  struct Worker {
    std::deque<Answer> expected = {};
    std::vector<Command> later = {};
    std::chrono::steady_clock::time_point told = std::chrono::steady_clock::now();
  };
  Worker& to(int rank) { return to_[static_cast<std::size_t>(rank)]; }
  const Value& value(int rank, const Answer& answer);
  /// Tells all workers that have not been told anything for a while that the master is alive.
  void keep_alive();

  Communicator& comm_;
  Outbox outbox_;
  std::chrono::duration<double> silence_;  // after which a worker gets a keep-alive
  std::vector<Worker> to_;                 // by rank
  Id next_ = 1;
  bool is_open_ = true;
};

}  // namespace stagecoach::rpc
