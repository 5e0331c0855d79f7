#pragma once
/// @file
/// How ranks communicate: point-to-point messages and collectives. A program that uses this class runs unchanged on
/// threads of one process and on many processes.
///
/// Every call that waits has a deadline. When it passes, or when another rank has failed, the call throws CommError,
/// which names the rank, the call, what the rank was working on, and the tag.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/tensor.h"
#include "parallel/comm/group.h"

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
  /// Waits until the receiver has the message.
  void wait() const { wait_(); }
  /// Returns whether it is known that the receiver has the message now, by this rank's clock. Whether that is known
  /// already can depend on real time, but if so, wait() takes no time.
  bool completed() const { return completed_(); }

 private:
  std::function<void()> wait_;
  std::function<bool()> completed_;
};

/// A posted receive. It must not outlive its communicator. If its last copy is destroyed before anyone has waited for
/// it, the receive is withdrawn: a message that has already arrived for it is lost, but later messages are not. (NCCL
/// cannot withdraw a receive: the next receive from that rank takes it over.)
class PendingReceive {
 public:
  explicit PendingReceive(std::function<Tensor()> wait) : wait_(std::move(wait)) {}
  /// Waits for the tensor and returns it. Call it once.
  Tensor wait() const { return wait_(); }

 private:
  std::function<Tensor()> wait_;
};

class CommunicatorControls;

/// A number of rows for each rank of a group, in rank order.
using RowCounts = std::vector<std::int64_t>;

/// Tags are from 0 to kMaxTag.
inline constexpr int kMaxTag = (1 << 26) - 1;

/// One rank's view of a group of ranks, used only by that rank's thread. Ranks are numbered from 0 within the group.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return group_.rank; }
  int size() const { return group_.size(); }
  Device device() const { return group_.device; }
  /// Returns where numbers are: on the host if this rank's tensors have no elements, as those of a plan.
  Device number_device() const { return device().type == DeviceType::meta ? Device{} : device(); }
  /// Returns this rank's clock, which accounts for every wait in the calls below.
  Clock& clock() const { return *group_.clock; }
  /// Returns the link of messages between this rank and another, by a virtual clock.
  Link link_to(int rank) const { return clock().network().between(group_.members, group_.rank, rank, group_.siblings); }
  /// Returns the bytes that this rank has sent so far, by receiving rank of the world, with all its communicators.
  /// Messages count as they are. Collectives count as what the algorithms of link.h send, whatever the transport does
  /// (threads share memory). Numbers, barriers and splits do not count.
  std::map<int, double> bytes_sent() const { return group_.sent->by_receiver(); }

  // Messages. Messages from one rank to another with the same tag arrive in the order in which they were sent. NCCL has
  // no tags: there, receives from a rank must be posted in the order in which that rank sends.
  /// Sends `tensor` to another rank and returns when that rank has received it. Between threads on CPUs, or on one GPU,
  /// nothing is copied: the memory then belongs to the receiver, and the sender must not write to it. Throws Error if
  /// `to` does not exist or is this rank.
  void send(const Tensor& tensor, int to, int tag) { send_async(tensor, to, tag).wait(); }
  /// Waits for a tensor on this rank's device. Throws CommError if the shape or type of the tensor that arrives
  /// differs.
  Tensor receive(const Shape& shape, DType dtype, int from, int tag) {
    return receive_async(shape, dtype, from, tag).wait();
  }
  /// Sends without waiting. With send(), two ranks that first send to each other and then receive would deadlock.
  virtual PendingSend send_async(const Tensor& tensor, int to, int tag) = 0;
  /// Posts a receive: from now on the message can arrive, and a send that waits for the receiver can complete.
  virtual PendingReceive receive_async(const Shape& shape, DType dtype, int from, int tag) = 0;

  /// Sends a number that controls the program, such as whether to stop, without waiting for a device or the receiver.
  /// Clocks that compute times do not count the time that it travels.
  virtual void send_number(double number, int to, int tag) = 0;
  virtual double receive_number(int from, int tag) = 0;
  /// Returns a number that has arrived already, or nothing. Does not wait.
  virtual std::optional<double> try_receive_number(int from, int tag) = 0;

  // Collectives. All ranks of the group call them in the same order, with tensors of one shape and type; otherwise all
  // ranks get a CommError (with NCCL, which does not compare shapes and types, ranks that wait get it at the deadline).
  // Sums are added in rank order, so equal inputs give equal bytes, unless the world uses ReduceKind::native. Sums of
  // float16 are computed in float32 and rounded once.
  /// Replaces `tensor` with the sum over all ranks.
  virtual void all_reduce(Tensor& tensor) = 0;
  /// Returns the sums over all ranks of the numbers at each index.
  std::vector<double> sum_numbers(const std::vector<double>& mine) {
    Tensor sums = Tensor::from(mine, {static_cast<std::int64_t>(mine.size())}, number_device());
    all_reduce(sums);
    return sums.to_vector<double>();
  }
  /// Replaces `tensor` on rank `root` with the sum over all ranks; other ranks keep theirs.
  virtual void reduce(Tensor& tensor, int root) = 0;
  /// Replaces `tensor` with the tensor of rank `root`.
  virtual void broadcast(Tensor& tensor, int root) = 0;
  /// Returns the tensors of all ranks, in rank order.
  virtual std::vector<Tensor> all_gather(const Tensor& tensor) = 0;
  /// Writes the `part` [N, …] of each rank to `whole` [size N, …], in rank order. `part` may be its place in `whole`.
  virtual void all_gather_into(Tensor& whole, const Tensor& part) = 0;
  /// Returns part rank() of the sum over all ranks: [size N, …] becomes [N, …].
  virtual Tensor reduce_scatter(const Tensor& tensor) = 0;
  /// Sends the rows of `rows` [N, …] to the ranks: the first send_rows[0] to rank 0, the next send_rows[1] to rank 1,
  /// and so on. Returns the rows that the ranks send to this one, receive_rows[r] from rank r, in rank order. The
  /// counts of a pair must agree (exchange_counts returns them); N may differ between ranks, all else of shape and type
  /// may not. The gradient of the rows is an all-to-all with the counts exchanged (exchange_rows in conjugate.h).
  virtual Tensor all_to_all(const Tensor& rows, const RowCounts& send_rows, const RowCounts& receive_rows) = 0;
  /// Returns how many rows each rank will send to this one, if each passes how many it will send to the others: an
  /// all-to-all of one number per pair of ranks.
  RowCounts exchange_counts(const RowCounts& send_rows) {
    const std::vector<std::int32_t> counts(send_rows.begin(), send_rows.end());
    const RowCounts one_each(counts.size(), 1);
    const Tensor mine = Tensor::from(counts, {static_cast<std::int64_t>(counts.size())}, number_device());
    const auto theirs = all_to_all(mine, one_each, one_each).to_vector<std::int32_t>();
    return {theirs.begin(), theirs.end()};
  }
  /// Waits until all ranks have called it.
  virtual void barrier() = 0;

  /// Returns the group of the ranks that passed the same `colour`, ordered by `key` and then by rank in this group. All
  /// ranks call it.
  virtual std::unique_ptr<Communicator> split(int colour, int key) = 0;

  /// Returns another communicator of this group for the calling thread, with its own clock. Messages of the two
  /// communicators never match. All ranks call it. No other thread may use this communicator during the call.
  virtual std::unique_ptr<Communicator> duplicate() = 0;

  /// Returns what a training loop does not need.
  virtual CommunicatorControls& controls() = 0;

 protected:
  explicit Communicator(Group group) : group_(std::move(group)) {}
  /// For a decorator of `other`, which is the same rank of the same group.
  Communicator(const Communicator& other) = default;
  const Group& group() const { return group_; }

 private:
  Group group_;
};

}  // namespace stagecoach
