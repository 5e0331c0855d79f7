#pragma once
/// @file
/// The messages of remote calls: commands from the master to a worker, and values in all directions. A message is a
/// header of one size, which the receiver can post a receive for, followed by what the header announces.

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "parallel/comm/communicator.h"

namespace stagecoach::rpc {

/// Names something that a worker keeps. The master chooses the numbers.
using Id = std::int64_t;

/// What a worker is told to do. `result`, `of`, `context` and `name` are those of Command.
enum class Task : std::int32_t {
  make_module,  ///< makes module `result` by the factory `name`; answers
  parameters,  ///< keeps the parameters of module `of` as values from `result` on, unless that is 0; answers with their
               ///< names, each with a newline
  make_optimizer,  ///< makes optimizer `result` of the parameters `arguments` by the factory `name`; answers
  call,            ///< keeps what function `name` returns for `arguments` as value `result`
  forward,      ///< keeps the output of module `of` for arguments[0] as value `result`; with a context, and its graph
  backward,     ///< runs the backward of value `of` from gradient arguments[0]; keeps the input's gradient as `result`
  step,         ///< makes a step of optimizer `of` with the gradients of `context`; answers
  check,        ///< answers with the first error of `context`, if there was one
  send,         ///< sends value `of` to rank `peer`
  receive,      ///< receives value `result` from rank `peer`
  drop,         ///< forgets value `of`
  end_context,  ///< forgets the gradients of `context`
  keep_alive,   ///< does nothing: the master is busy with others
  shut_down,    ///< ends the worker; must be the last
};

struct Command {
  Task task = Task::shut_down;
  Id result = 0;
  Id of = 0;
  Id context = 0;  ///< 0: none
  int peer = 0;
  bool needs_input_grad = false;  ///< of a forward
  std::string name = {};
  std::vector<Id> arguments = {};
};

/// A tensor, or the error that happened in its place. An undefined tensor without error is an answer without a value.
struct Value {
  Tensor tensor = {};
  std::string error = {};  ///< names the rank where it happened
};

/// Sends messages to other ranks without waiting for them, and keeps those that are under way.
class Outbox {
 public:
  explicit Outbox(Communicator& comm) : comm_(comm) {}
  void send(const Command& command, int to);
  void send(const Value& value, int to);
  bool empty() const { return sends_.empty(); }
  /// Waits until the earliest message has been received.
  void wait_for_first();
  /// Waits until all messages have been received.
  void wait();

 private:
  void send(const Tensor& tensor, int to, int tag);
  Communicator& comm_;
  std::deque<PendingSend> sends_;
};

/// Wait for the next message of this kind from rank `from`. Throw CommError after the deadline, or when a rank has
/// failed.
Command receive_command(Communicator& comm, int from);
Value receive_value(Communicator& comm, int from);

/// Convert a text to a tensor uint8 [n] and back.
Tensor tensor_of(const std::string& text, Device device);
std::string text_of(const Tensor& bytes);

}  // namespace stagecoach::rpc
