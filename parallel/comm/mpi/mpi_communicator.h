#pragma once
/// @file
/// The communicator of ranks that are processes and communicate by MPI. Only sources that are built with MPI include
/// this header.

#include <mpi.h>

#include <deque>
#include <map>
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

  PendingSend send_async(const Tensor& tensor, int to, int tag) override;
  PendingReceive receive_async(const Shape& shape, DType dtype, int from, int tag) override;
  void send_number(double number, int to, int tag) override;
  double receive_number(int from, int tag) override;
  std::optional<double> try_receive_number(int from, int tag) override;
  std::unique_ptr<Communicator> split(int colour, int key) override;
  std::unique_ptr<Communicator> duplicate() override;

 private:
  /// A message under way.
  struct Sent {
    MpiOutgoing message;
    MpiRequests requests;
    double completed_at = 0;  // by a virtual clock: time sent by the receiver
    std::shared_ptr<void> moving;
    void end() {
      message.end();
      moving = nullptr;
    }
  };
  /// The buffers of one exchange, indexed by rank. This rank's own entry is empty.
  struct Exchange {
    std::vector<MpiOutgoing> out;
    std::vector<MpiIncoming> in;
    MpiRequests requests;
  };

  void exchange(const char* operation, const Tensor& like, ExchangeBuffers& buffers) override;
  bool sum_natively(Tensor& tensor) override;
  /// Throws CommError unless rank `from` is in the same exchange as this rank.
  void require_same(const char* operation, const Tensor& like, const MpiHeader& theirs, int from) const;
  /// Starts to send `tensor`, and keeps its memory until it has been sent.
  std::shared_ptr<Sent> start_send(const char* operation, const Tensor& tensor, int to, int tag);
  /// Posts a receive into `tensor`. It is withdrawn with the last copy of the result, unless wait_for has returned.
  std::shared_ptr<MpiReceives::Posted> post(const char* operation, const Tensor& tensor, int from, int tag);
  Tensor wait_for(MpiReceives::Posted& posted, const ErrorContext& context);
  /// Waits until all of `requests` are done; meanwhile, with a virtual clock, answers senders.
  void wait(std::span<MPI_Request> requests, const ErrorContext& context);
  void forget_sent();
  LinkDirection& direction(std::map<int, LinkDirection>& directions, int peer);
  /// If `tensor` is long, keeps its transfer progressing while this rank computes.
  std::shared_ptr<void> keep_moving(const Tensor& tensor);
  bool is_virtual() { return clock().kind() == ClockKind::virtual_time; }

  MpiWorld& world_;
  MPI_Comm comm_;
  std::shared_ptr<MpiReceives> receives_;
  std::deque<std::shared_ptr<Sent>> sent_;
  // Used with a virtual clock: one per rank.
  std::map<int, LinkDirection> directions_out_;
  std::map<int, LinkDirection> directions_in_;
  std::shared_ptr<Exchange> exchange_;
};

}  // namespace stagecoach
