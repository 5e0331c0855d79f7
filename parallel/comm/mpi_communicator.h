#pragma once
/// @file
/// The communicator of ranks that are processes and talk by MPI.

#include <mpi.h>

#include <deque>
#include <memory>
#include <stop_token>
#include <vector>

#include "parallel/comm/exchange_communicator.h"
#include "parallel/comm/mpi_world.h"

namespace stagecoach {

/// A message begins with a header, which says what it is; the tensor follows in the same message of MPI when it is
/// short, and in one of its own otherwise, so that it is not copied.
class MpiCommunicator final : public ExchangeCommunicator {
 public:
  /// `comm` is this group's alone; it is freed at the end unless the world has failed.
  MpiCommunicator(MpiWorld& world, MPI_Comm comm, Group group, ThreadWorld::Waits waits);
  ~MpiCommunicator() override;

  PendingSend send_async(const Tensor& tensor, int to, int tag) override;
  PendingReceive receive_async(const Shape& shape, DType dtype, int from, int tag) override;
  void send_number(double number, int to, int tag) override;
  double receive_number(int from, int tag) override;
  std::unique_ptr<Communicator> split(int colour, int key) override;
  std::unique_ptr<Communicator> duplicate() override;
  void abandon() override { abandoned_.request_stop(); }

 private:
  struct Header;
  struct Outgoing;
  struct Incoming;

  void exchange(const char* operation, const Tensor& like, Parcels& parcels) override;
  std::size_t short_bytes() const override;

  /// Starts to send.
  std::shared_ptr<Outgoing> post(const char* operation, const Tensor& like, const Tensor& tensor, int to, int tag);
  /// The same, and keeps the memory until it is sent.
  std::shared_ptr<Outgoing> send_off(const char* operation, const Tensor& tensor, int to, int tag);
  /// Starts to receive into `tensor`.
  std::shared_ptr<Incoming> expect(const Tensor& tensor, int from, int tag);
  /// Waits for a message like `tensor`, and gives it; by a virtual clock, tells the sender when it was taken.
  Tensor take(const char* operation, Tensor tensor, int from, int tag);
  double time_now() { return clock().kind() == ClockKind::wall ? 0 : clock().now(); }
  /// What was sent completely needs no memory any more.
  void forget_sent();

  MpiWorld& world_;
  MPI_Comm comm_;
  std::stop_source abandoned_;
  ThreadWorld::Patience patience_;
  std::deque<std::shared_ptr<Outgoing>> sent_;
};

}  // namespace stagecoach
