#pragma once
/// @file
/// The communicator of ranks that have a GPU each: tensors go over a wire, which is NCCL's. Nothing here needs a GPU,
/// so tests run it over a wire of their own.
///
/// NCCL knows neither tags nor types nor deadlines.
///  - A message goes without being announced: both ranks begin it when they come to it, the receiver when it posts its
///    receive. Each direction between two ranks is a channel of its own, so that a receive that is posted early holds
///    up nothing but later messages of that direction. Receives must be posted in the order in which the other rank
///    sends. Schedules are checked for that before they run; what disagrees nevertheless ends at the deadline, or in
///    the wrong tensor where shapes are the same.
///  - A rank that waits looks again and again whether it is over, whether another rank has failed or died, and what
///  time
///    it is; to end the wait it aborts NCCL's communicators (ncclCommAbort).
///  - A receive that was posted cannot be withdrawn. One that nobody waits for is taken over by the next receive from
///    that rank.
/// The store of the run is asked for a constant number of things per communicator and direction (to connect), for
/// numbers of the program itself (send_number), and for nothing per tensor.

#include <deque>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "parallel/comm/exchange_communicator.h"
#include "parallel/comm/tcp/mail.h"
#include "parallel/comm/wire.h"

namespace stagecoach {

class NcclCommunicator final : public ExchangeCommunicator {
 public:
  /// `mail` is this rank's in the whole world, `wire` this group's alone. The clock must be the wall's.
  NcclCommunicator(Mail& mail, std::unique_ptr<Wire> wire, Group group);
  ~NcclCommunicator() override;

  PendingSend send_async(const Tensor& tensor, int to, int tag) override;
  PendingReceive receive_async(const Shape& shape, DType dtype, int from, int tag) override;
  void send_number(double number, int to, int tag) override;
  double receive_number(int from, int tag) override;
  std::unique_ptr<Communicator> split(int colour, int key) override;
  std::unique_ptr<Communicator> duplicate() override;
  void lend_core(bool /*lent*/) override {}  // it waits for the GPU, and lets others have the core
  void abandon() override { abandoned_.request_stop(); }

 private:
  /// A message under way. One without bytes is through at once.
  struct Message {
    Tensor tensor;
    std::shared_ptr<Wire::Transfer> transfer = nullptr;
    bool is_done() const { return transfer == nullptr || transfer->is_done(); }
  };
  class Receive;
  using Words = MailWait::Words;

  void exchange(const char* operation, const Tensor& like, Parcels& parcels) override;
  bool sum_natively(Tensor& tensor) override;
  Message start(Wire::Move::Way way, const Tensor& tensor, int peer, int tag);
  /// The oldest receive from rank `from` that nobody waits for, or a new one.
  Message post(const Shape& shape, DType dtype, int from, int tag);
  Tensor wait_for(Message& message, const Words& words);
  /// Moves on what was sent, and forgets what has arrived.
  void serve();
  /// Serves others until `done` holds. When that fails, the wire's transfers are ended.
  template <class Done>
  void wait(const Done& done, const Words& words);
  std::unique_ptr<Wire> split_wire(int colour, int key, const char* operation);
  std::string key(const std::string& rest) const { return group().name + "/" + rest; }

  Mail& mail_;
  std::unique_ptr<Wire> wire_;
  std::stop_source abandoned_;
  std::deque<std::shared_ptr<Message>> outbox_;
  std::map<int, std::deque<Message>> unwanted_;  // receives that nobody waits for, by the rank that sends
  bool broken_ = false;
  int exceptions_before_;
};

}  // namespace stagecoach
