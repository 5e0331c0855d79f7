#pragma once
/// @file
/// Collectives built from exchanges, in which each rank sends tensors to others and receives theirs: for ranks that
/// share no memory.

#include <map>
#include <vector>

#include "parallel/comm/group_communicator.h"
#include "parallel/comm/link_direction.h"
#include "parallel/comm/message_header.h"

namespace stagecoach {

/// By a clock, all of a collective is a wait.
class ExchangeCommunicator : public GroupCommunicator {
 public:
  using GroupCommunicator::GroupCommunicator;

 protected:
  /// Returns whether the times of messages are computed. Then the header of a message says when it was sent, and the
  /// receiver computes when it arrives (timed_receives.h).
  bool computes_times() const { return clock().kind() != ClockKind::wall; }
  /// Returns what the header says of a message of `bytes` that is sent now; nothing in particular if no times are
  /// computed.
  LinkDirection::Send time_of_send(double bytes, int to) {
    return computes_times() ? direction(directions_out_, to).send(bytes, clock().now()) : LinkDirection::Send{};
  }
  LinkDirection& direction_from(int peer) { return direction(directions_in_, peer); }

  /// The tensors sent to and received from another rank, on this rank's device; an undefined tensor means none.
  struct PeerBuffers {
    Tensor out = {};
    Tensor in = {};  ///< has the shape and type of the tensor to receive
  };
  /// One entry per rank; this rank's own entry is ignored.
  using ExchangeBuffers = std::vector<PeerBuffers>;

  /// Sends and receives all of `buffers` concurrently. Peers must be in an exchange of the same `operation` on tensors
  /// with the shape and type of `like`, or, if that is undefined, send tensors with those of `in`; throws CommError
  /// where a mismatch can be detected.
  virtual void exchange(const char* operation, const Tensor& like, ExchangeBuffers& buffers) = 0;

  /// Returns the header of a message of an exchange.
  static MessageHeader header_of(const char* operation, const Tensor& like, const Tensor& out) {
    return {operation, like.defined() ? like : out};
  }
  /// Throws CommError unless rank `from`, whose header is `theirs`, is in the same exchange as this rank.
  void require_same(const char* operation, const Tensor& like, const Tensor& in, const MessageHeader& theirs,
                    int from) const;

  /// Replaces `tensor`, which must not be empty, with the sum over all ranks as computed by the library. Returns false
  /// if the library cannot sum that type.
  virtual bool sum_natively(Tensor& tensor) = 0;

 private:
  double latest_time(const char* operation, double mine) final;
  void do_all_reduce(Tensor& tensor) final;
  void do_reduce(Tensor& tensor, int root) final;
  void do_broadcast(Tensor& tensor, int root) final;
  std::vector<Tensor> do_all_gather(const char* operation, const Tensor& tensor) final;
  void do_all_gather_into(Tensor& whole, const Tensor& part) final;
  Tensor do_reduce_scatter(const Tensor& tensor) final;
  Tensor do_all_to_all(const Tensor& rows, const RowCounts& send_rows, const RowCounts& receive_rows) final;
  void do_barrier() final;

  ExchangeBuffers nothing() const { return ExchangeBuffers(static_cast<std::size_t>(size())); }
  /// Returns the buffers that make(peer) returns for each other rank.
  template <class Make>
  ExchangeBuffers for_each_peer(const Make& make) const;
  PeerBuffers& with(ExchangeBuffers& buffers, int peer) const { return buffers[static_cast<std::size_t>(peer)]; }
  /// Writes the sum of `mine` and the received tensors to `mine`, added in rank order.
  void sum_into(const Tensor& mine, const ExchangeBuffers& buffers) const;
  void sum_whole(Tensor& tensor);
  Tensor short_sum_buffer(const Tensor& tensor, int from);
  void sum_in_parts(Tensor& tensor);

  LinkDirection& direction(std::map<int, LinkDirection>& directions, int peer) {
    return directions.try_emplace(peer, link_to(peer)).first->second;
  }

  std::map<int, LinkDirection> directions_out_;  // by rank
  std::map<int, LinkDirection> directions_in_;
  std::vector<Tensor> short_sum_buffers_;  // receive buffers, kept from the last short sum
};

}  // namespace stagecoach
