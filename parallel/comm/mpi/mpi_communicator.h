#pragma once
/// @file
/// The communicator of ranks that are processes and communicate by MPI. Only sources that are built with MPI include
/// this header.

#include <mpi.h>

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "parallel/comm/exchange_communicator.h"
#include "parallel/comm/mpi/mpi_message.h"
#include "parallel/comm/mpi/mpi_receives.h"
#include "parallel/comm/mpi/mpi_world.h"

namespace stagecoach {

class MpiCommunicator final : public ExchangeCommunicator {
 public:
  /// `comm` belongs to this group alone; the destructor frees it unless the world has failed. `receives` belongs to the
  /// thread that uses this communicator.
  MpiCommunicator(MpiWorld& world, MPI_Comm comm, Group group, std::shared_ptr<MpiReceives> receives, WaitMode mode,
                  bool may_spin = true);
  ~MpiCommunicator() override;

 private:
  class Send;
  class Receive;
  /// The buffers of one exchange, indexed by rank. This rank's own entry is empty.
  struct Exchange {
    std::vector<MpiOutgoing> out;
    std::vector<MpiIncoming> in;
    MpiRequests requests;
  };

  std::shared_ptr<Outgoing> start_send(const Tensor& tensor, int to, int tag, const ErrorContext& context) override;
  std::shared_ptr<Incoming> post_receive(const Shape& shape, DType dtype, Device device, int from, int tag,
                                         const ErrorContext& context) override;
  std::optional<double> poll_number(int from, int tag, const ErrorContext& context) override;
  std::unique_ptr<Communicator> make_part(Group part) override;
  std::unique_ptr<Communicator> make_duplicate(Group copy) override;
  void exchange(const char* operation, const Tensor& like, ExchangeBuffers& buffers) override;
  bool sum_natively(Tensor& tensor) override;
  /// Waits until all of `requests` are done; meanwhile, if times are computed, answers senders.
  void wait(std::span<MPI_Request> requests, const ErrorContext& context);
  /// If `tensor` is long, keeps its transfer progressing while this rank computes.
  std::shared_ptr<void> keep_moving(const Tensor& tensor);

  MpiWorld& world_;
  MPI_Comm comm_;
  std::shared_ptr<MpiReceives> receives_;
  std::deque<std::shared_ptr<Send>> sent_;
  std::shared_ptr<Exchange> exchange_;
};

}  // namespace stagecoach
