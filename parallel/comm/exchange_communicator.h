#pragma once
/// @file
/// Collectives built from exchanges, in which each rank sends tensors to others and receives theirs: for ranks that
/// share no memory.

#include <vector>

#include "parallel/comm/group_communicator.h"

namespace stagecoach {

/// By a clock, all of a collective is a wait.
class ExchangeCommunicator : public GroupCommunicator {
 public:
  using GroupCommunicator::GroupCommunicator;

 protected:
  /// The tensors sent to and received from another rank, on this rank's device; an undefined tensor means none.
  struct PeerBuffers {
    Tensor out = {};
    Tensor in = {};  ///< has the shape and type of the tensor to receive
  };
  /// One entry per rank; this rank's own entry is ignored.
  using ExchangeBuffers = std::vector<PeerBuffers>;

  /// Sends and receives all of `buffers` concurrently. Peers must be in an exchange of the same `operation` on tensors
  /// with the shape and type of `like`; throws CommError where a mismatch can be detected.
  virtual void exchange(const char* operation, const Tensor& like, ExchangeBuffers& buffers) = 0;

  /// Replaces `tensor`, which must not be empty, with the sum over all ranks as computed by the library. Returns false
  /// if the library cannot sum that type.
  virtual bool sum_natively(Tensor& tensor) = 0;

 private:
  double latest_time(const char* operation, double mine) final;
  void do_all_reduce(Tensor& tensor) final;
  void do_reduce(Tensor& tensor, int root) final;
  void do_broadcast(Tensor& tensor, int root) final;
  std::vector<Tensor> do_all_gather(const char* operation, const Tensor& tensor) final;
  Tensor do_reduce_scatter(const Tensor& tensor) final;
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

  std::vector<Tensor> short_sum_buffers_;  // receive buffers, kept from the last short sum
};

}  // namespace stagecoach
