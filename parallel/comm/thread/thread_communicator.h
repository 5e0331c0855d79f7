#pragma once
/// @file
/// The communicator of ranks that are threads of one process.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/stream.h"
#include "parallel/comm/group_communicator.h"
#include "parallel/comm/thread/thread_world.h"

namespace stagecoach {

class ThreadCommunicator final : public GroupCommunicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadWorld> world, Group group, WaitMode mode, bool may_spin = true)
      : GroupCommunicator(std::move(group), mode, may_spin), world_(std::move(world)) {}

 private:
  class Send;
  class Receive;

  std::shared_ptr<Outgoing> start_send(const Tensor& tensor, int to, int tag, const ErrorContext& context) override;
  std::shared_ptr<Incoming> post_receive(const Shape& shape, DType dtype, Device device, int from, int tag,
                                         const ErrorContext& context) override;
  std::optional<double> poll_number(int from, int tag, const ErrorContext& context) override;
  double latest_time(const char* operation, double mine) override;
  void do_all_reduce(Tensor& tensor) override;
  void do_reduce(Tensor& tensor, int root) override;
  void do_broadcast(Tensor& tensor, int root) override;
  std::vector<Tensor> do_all_gather(const char* operation, const Tensor& tensor) override;
  void do_all_gather_into(Tensor& whole, const Tensor& part) override;
  Tensor do_reduce_scatter(const Tensor& tensor) override;
  Tensor do_all_to_all(const Tensor& rows, const RowCounts& send_rows, const RowCounts& receive_rows) override;
  void do_barrier() override { end("barrier"); }
  std::unique_ptr<Communicator> make_part(Group part) override;
  std::unique_ptr<Communicator> make_duplicate(Group copy) override;
  void wake() override { world_->call(member(rank())); }

  /// `from` and `to` are ranks of this group.
  ThreadWorld::Address address_of(int from, int to, int tag) const {
    return {group().name, member(from), member(to), tag};
  }
  /// Passes `mine` to the group's next rendezvous and returns the values of all ranks.
  template <class T>
  std::vector<T> rendezvous(const std::string& operation, const T& mine);
  /// Does the same with the clock stopped until all ranks have arrived.
  template <class T>
  std::vector<T> wait_for_all(const std::string& operation, const T& mine);
  /// What a rank shows the others in a collective: its tensor and, in an all-to-all, its counts.
  struct Shared {
    Tensor tensor;
    RowCounts send_rows = {};
    RowCounts receive_rows = {};
    Event ready = {};
  };
  /// Returns what all ranks share, when this rank may read it.
  std::vector<Shared> shared_by_all(const char* operation, Shared mine);
  /// Throws CommError unless, in an all-to-all, each rank sends each other one the rows that it expects.
  void require_matching_rows(const char* operation, const std::vector<Shared>& all) const;
  /// Returns the tensors of all ranks, after checking that their shapes and types agree.
  std::vector<Tensor> tensors_of_all(const char* operation, const Tensor& tensor);
  /// Waits until all ranks have ended their work on the tensors of others.
  void end(const std::string& operation);
  /// Returns the sum of elements start … start + length - 1 of all `tensors`, added in rank order.
  Tensor sum_of(const std::vector<Tensor>& tensors, std::int64_t start, std::int64_t length) const;

  std::shared_ptr<ThreadWorld> world_;
  std::int64_t rendezvous_count_ = 0;
};

}  // namespace stagecoach
