#pragma once
/// @file
/// Collectives made of exchanges, in which each rank sends tensors to others and receives some: for ranks that share no
/// memory.

#include <memory>
#include <vector>

#include "parallel/comm/group_communicator.h"

namespace stagecoach {

class ExchangeCommunicator : public GroupCommunicator {
 public:
  using GroupCommunicator::GroupCommunicator;

  void all_reduce(Tensor& tensor) override;
  void reduce(Tensor& tensor, int root) override;
  void broadcast(Tensor& tensor, int root) override;
  std::vector<Tensor> all_gather(const Tensor& tensor) override;
  Tensor reduce_scatter(const Tensor& tensor) override;
  void barrier() override;

 protected:
  /// What goes to another rank and what comes from it: a tensor on this rank's device, or an undefined one for nothing.
  struct PeerBuffers {
    Tensor out = {};
    Tensor in = {};  ///< has the shape and type of what comes
  };
  /// One per rank; this rank's own is ignored.
  using ExchangeBuffers = std::vector<PeerBuffers>;

  /// Sends and receives all of `buffers` at once. The other end must be in an exchange of the same `operation` on
  /// tensors like `like`; where that can be seen to be otherwise this throws CommError.
  virtual void exchange(const char* operation, const Tensor& like, ExchangeBuffers& buffers) = 0;

  /// Replaces `tensor`, which has elements, by the sum over all ranks as the library makes it. False when it cannot sum
  /// that type.
  virtual bool sum_natively(Tensor& tensor) = 0;

  /// By a virtual clock: the latest of the ranks' times; by the wall nothing needs to be known.
  double latest_time(const char* operation, const Tensor& like);
  /// What each rank chose, in their order.
  std::vector<Choice> gather_choices(int colour, int key);

 private:
  class CollectiveScope;

  /// all_gather, under the name of what it is for.
  std::vector<Tensor> gather(const char* operation, const Tensor& tensor);
  ExchangeBuffers nothing() const { return ExchangeBuffers(static_cast<std::size_t>(size())); }
  PeerBuffers& with(ExchangeBuffers& buffers, int peer) const { return buffers[static_cast<std::size_t>(peer)]; }
  /// Adds to `mine`, in the order of the ranks, what the others sent.
  void sum_into(const Tensor& mine, const ExchangeBuffers& buffers) const;
  void sum_whole(Tensor& tensor);
  Tensor kept_room_for(const Tensor& tensor, int from);
  void sum_in_parts(Tensor& tensor);

  std::vector<Tensor> rooms_;  // receive buffers of the last short sum
};

}  // namespace stagecoach
