#pragma once
/// @file
/// One rank's end of the messages of remote calls.

#include <deque>
#include <vector>

#include "parallel/comm/heartbeat.h"
#include "parallel/rpc/message.h"

namespace stagecoach::rpc {

/// What a rank of remote calls has done.
struct Report {
  double time = 0;                      ///< by its clock, in seconds since the world began
  double waited = 0;                    ///< seconds in which it waited for others
  double peak_bytes = 0;                ///< of memory, since the last report
  std::vector<double> bytes_sent = {};  ///< by rank

  /// Returns them as a tensor float64, and from one.
  Tensor to_tensor(Device device) const;
  static Report from(const Tensor& tensor);
};

/// Sends messages without waiting for the receivers, and waits for messages. A wait ends with CommError when another
/// rank fails, or when the rank that is waited for shows no sign of life for the timeout of the world: not while it is
/// busy.
class Endpoint {
 public:
  /// Collective over `comm`, which must outlive this object. `timeout` is that of the world, in seconds.
  Endpoint(Communicator& comm, double timeout, Heartbeat::Beats beats)
      : comm_(comm), thread_(comm), heartbeat_(thread_, comm, timeout, beats) {}

  int rank() const { return comm_.rank(); }
  int size() const { return comm_.size(); }
  Device device() const { return comm_.device(); }

  /// Returns what this rank has done so far. Measures the peak of its memory anew from now on.
  Report report();

  /// Sends commands as one message, if they are short. Their tensors must not be written to from now on.
  void send(const std::vector<Command>& commands, int to) { send(pack(commands), to, kCommands); }
  void send(const Value& value, int to) { send(pack(value), to, kValues); }
  /// Waits for the next commands from rank `from`.
  std::vector<Command> receive_commands(int from) { return unpack_commands(receive(from, kCommands)); }
  /// Waits for the next value from rank `from`.
  Value receive_value(int from) { return unpack_value(receive(from, kValues)); }

  /// Waits until all that was sent has been received, and until all ranks have called it.
  void end();

 private:
  // Messages of one tag arrive in the order in which they were sent.
  enum Tag : int { kCommands, kValues };
  struct Send {
    int to;
    PendingSend pending;
  };
  void send(const Packed& packed, int to, int tag);
  void send(const Tensor& tensor, int to, int tag);
  Unpacker receive(int from, int tag);

  Communicator& comm_;
  CommThread thread_;  // of heartbeat_
  Heartbeat heartbeat_;
  std::deque<Send> sends_;
};

}  // namespace stagecoach::rpc
