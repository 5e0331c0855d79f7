#pragma once
/// @file
/// How ranks communicate: messages between two of them, and collectives. A program that uses this class runs on threads
/// of one process and on many processes, unchanged.
///
/// Every call that waits has a deadline. When it passes, or when another rank has failed, the call throws CommError,
/// which names the rank, the call, what the rank was working on, and the tag.

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/tensor.h"
#include "parallel/comm/clock.h"

namespace stagecoach {

/// A wait passed its deadline, or another rank has failed. Exit code 4.
class CommError : public Error {
 public:
  using Error::Error;
};

/// A message under way. Copies are the same message; they must not outlive their communicator.
class PendingSend {
 public:
  PendingSend(std::function<void()> wait, std::function<bool()> completed)
      : wait_(std::move(wait)), completed_(std::move(completed)) {}
  /// Returns when the receiver has the message.
  void wait() const { wait_(); }
  /// Whether it has.
  bool completed() const { return completed_(); }

 private:
  std::function<void()> wait_;
  std::function<bool()> completed_;
};

/// A message that is expected. It must not outlive its communicator. When its last copy is destroyed and nobody has
/// waited for it, the receive is withdrawn: a message that has arrived for it is lost, those that follow are not. (NCCL
/// withdraws nothing: the next receive from that rank takes its place.)
class PendingReceive {
 public:
  struct Arrived {
    Tensor tensor;
    double time;  ///< of its arrival, by this rank's clock. Between processes, by the wall clock: when the wait ended.
  };
  explicit PendingReceive(std::function<Arrived()> wait) : wait_(std::move(wait)) {}
  /// Returns the tensor when it is there. Call one of the two, once.
  Tensor wait() const { return wait_().tensor; }
  Arrived wait_for_arrival() const { return wait_(); }

 private:
  std::function<Arrived()> wait_;
};

/// How all_reduce adds up.
enum class ReduceKind {
  ordered,  ///< in the order of the ranks: equal inputs give equal bytes, on every transport
  native,   ///< by MPI's or NCCL's own all-reduce: faster where it is tuned for the network, and within 1e-5 (relative)
            ///< of the ordered sum. It does not check that all ranks bring the same. Between threads: ordered.
};

/// Tags are numbers from 0 to this.
inline constexpr int kMaxTag = (1 << 26) - 1;

/// One rank's end. One thread, that of the rank, uses it. Ranks are numbers from 0: those of the group that the
/// communicator is for.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual Device device() const = 0;
  /// This rank's clock: it knows of every wait in the calls below.
  virtual Clock& clock() = 0;

  // Messages. Those from one rank to another under one tag arrive in the order in which they were sent. NCCL knows no
  // tags: there the receives from a rank must be posted in the order in which it sends.
  /// Hands `tensor` to another rank and returns when that has taken it. Between threads on CPUs nothing is copied: the
  /// memory is the receiver's from then on, and the sender writes to it no more. Throws Error for a rank that does not
  /// exist, or this one.
  void send(const Tensor& tensor, int to, int tag) { send_async(tensor, to, tag).wait(); }
  /// Waits for a tensor on this rank's device. Throws CommError when one of another shape or type arrives.
  Tensor receive(const Shape& shape, DType dtype, int from, int tag) {
    return receive_async(shape, dtype, from, tag).wait();
  }
  /// The same without waiting: two ranks that send to each other first and receive then would wait forever.
  virtual PendingSend send_async(const Tensor& tensor, int to, int tag) = 0;
  /// Posts a receive: from now on the message can come, and a send that waits for it to be taken can end.
  virtual PendingReceive receive_async(const Shape& shape, DType dtype, int from, int tag) = 0;

  /// A number for the program itself, such as whether to stop: no device is waited for. Sending does not wait.
  virtual void send_number(double number, int to, int tag) = 0;
  virtual double receive_number(int from, int tag) = 0;

  // Collectives. All ranks of the group call them, in the same order, with tensors of one shape and type;
  // otherwise all get a CommError (over NCCL, which is told nothing of them, whoever waits gets it at the deadline).
  // Sums are made in the order of the ranks: equal inputs give equal bytes, unless the world is one of native sums
  // (ReduceKind). A sum of float16 is made in float32 and rounded once.
  /// Replaces `tensor` by the sum over all ranks.
  virtual void all_reduce(Tensor& tensor) = 0;
  /// Replaces `tensor` of rank `root` by that sum; the others keep theirs.
  virtual void reduce(Tensor& tensor, int root) = 0;
  /// Replaces `tensor` by that of rank `root`.
  virtual void broadcast(Tensor& tensor, int root) = 0;
  /// The tensors of all ranks, in their order.
  virtual std::vector<Tensor> all_gather(const Tensor& tensor) = 0;
  /// tensor [size N, …] to [N, …]: part rank() of the sum over all ranks.
  virtual Tensor reduce_scatter(const Tensor& tensor) = 0;
  /// Returns when all ranks have called it.
  virtual void barrier() = 0;

  /// The group of the ranks that gave the same `colour`, ordered by `key` and then by rank here. All ranks call it.
  virtual std::unique_ptr<Communicator> split(int colour, int key) = 0;

  // A second thread of a rank.
  /// This group once more, with a clock of its own, for the thread that calls it. What it sends and what this one sends
  /// are kept apart. All ranks call it. Meanwhile nobody may use this one.
  virtual std::unique_ptr<Communicator> duplicate() = 0;
  /// Whether a duplicate's thread may poll. At first it sleeps while it waits, as it shares the core of the rank's own
  /// thread. While that waits too the core is free; with one core per rank the duplicate then polls. Any thread may
  /// call it.
  virtual void set_spinning(bool spinning) = 0;

  /// If this rank fails from now on, its last communication is left in `folder` (FlightRecorder::leave_in).
  virtual void leave_record_in(const std::filesystem::path& folder) = 0;
  /// Ends all waits of this communicator, now and later, with CommError. Any thread may call it.
  virtual void abort() = 0;
};

}  // namespace stagecoach
