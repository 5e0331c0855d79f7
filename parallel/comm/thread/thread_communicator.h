#pragma once
/// @file
/// The communicator of ranks that are threads of one process.

#include <memory>
#include <optional>

#include "parallel/comm/group_communicator.h"
#include "parallel/comm/thread/thread_world.h"

namespace stagecoach {

class ThreadCommunicator final : public GroupCommunicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadWorld> world, Group group, WaitMode mode, bool may_spin = true)
      : GroupCommunicator(std::move(group), mode, may_spin), world_(std::move(world)) {}

  PendingSend send_async(const Tensor& tensor, int to, int tag) override;
  PendingReceive receive_async(const Shape& shape, DType dtype, int from, int tag) override;
  void send_number(double number, int to, int tag) override;
  double receive_number(int from, int tag) override;
  std::optional<double> try_receive_number(int from, int tag) override;
  void all_reduce(Tensor& tensor) override;
  void reduce(Tensor& tensor, int root) override;
  void broadcast(Tensor& tensor, int root) override;
  std::vector<Tensor> all_gather(const Tensor& tensor) override;
  Tensor reduce_scatter(const Tensor& tensor) override;
  void barrier() override;
  std::unique_ptr<Communicator> split(int colour, int key) override;
  std::unique_ptr<Communicator> duplicate() override;
  void set_spinning(bool spinning) override;
  void abort() override;

 private:
  /// `from` and `to` are ranks of this group.
  ThreadWorld::Address address_of(int from, int to, int tag) const;
  /// Posts a receive, into `room` if that is defined. It is withdrawn with the last copy of the result, unless its
  /// message has come.
  std::shared_ptr<ThreadWorld::Posted> post(int from, int tag, const Tensor& room);
  /// Waits for the message of `posted` and returns it: the sender's own tensor, or a copy on this device.
  Tensor wait_for(ThreadWorld::Posted& posted, const ErrorContext& context);
  /// Passes `mine` to the group's next rendezvous and returns the values of all ranks. By a virtual clock, this takes
  /// `seconds` from the time when the last rank arrives.
  template <class T>
  std::vector<T> rendezvous(const char* operation, const T& mine, double seconds = 0);
  /// Returns the tensors of all ranks, after checking that their shapes and types agree.
  std::vector<Tensor> rendezvous_with(const char* operation, const Tensor& tensor, double seconds);
  /// Returns the sum of elements start … start + length - 1 of all `tensors`, added in rank order.
  Tensor sum_of(const std::vector<Tensor>& tensors, std::int64_t start, std::int64_t length) const;
  /// Returns `tensor`, which another rank computed, on this rank's device.
  Tensor here(const Tensor& tensor) const;

  std::shared_ptr<ThreadWorld> world_;
  std::int64_t rendezvous_count_ = 0;
};

}  // namespace stagecoach
