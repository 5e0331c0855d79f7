#pragma once
/// @file
/// The communicator of ranks that have a GPU each: tensors go over NCCL, behind an interface that tests implement
/// without a GPU.
///
/// NCCL knows neither tags nor types nor deadlines.
///  - A message goes without being announced: both ranks begin it when they come to it, the receiver when it posts its
///    receive. Each direction between two ranks is a channel of its own, so that a receive that is posted early holds
///    up nothing but later messages of that direction. Receives must be posted in the order in which the other rank
///    sends. Schedules are checked for that before they run; what disagrees nevertheless ends at the deadline, or in
///    the wrong tensor where shapes are the same.
///  - A rank that waits polls: whether the transfer has ended, whether another rank has failed or died, and whether the
///    deadline has passed. To end the wait it aborts NCCL's communicators (ncclCommAbort). Neither rank knows what type
///    of tensor the other one brings, so each names its own: those of both ranks are in the error of the one that stops
///    because the other has failed.
///  - A receive that was posted cannot be withdrawn. One that nobody waits for gets the next message of that rank, for
///    the next receive that is posted there. If that is of another type it is refused; so is the end of a communicator
///    with such receives a regular one: it is aborted.
/// Requests to the store: a constant number per communicator and direction (to connect), two per number (send_number),
/// none per tensor. Numbers are control messages, such as whether to stop. Over NCCL they would wait for all the work
/// that the GPUs were given so far, and so would the program that asks for them.

#include <deque>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "parallel/comm/exchange_communicator.h"
#include "parallel/comm/point_to_point_backend.h"
#include "parallel/comm/tcp/control_channel.h"

namespace stagecoach {

class NcclCommunicator final : public ExchangeCommunicator {
 public:
  /// `control` is this rank's in the whole world, `backend` this group's alone. The clock must be the wall's.
  NcclCommunicator(ControlChannel& control, std::unique_ptr<PointToPointBackend> backend, Group group);
  ~NcclCommunicator() override;

  PendingSend send_async(const Tensor& tensor, int to, int tag) override;
  PendingReceive receive_async(const Shape& shape, DType dtype, int from, int tag) override;
  void send_number(double number, int to, int tag) override;
  double receive_number(int from, int tag) override;
  std::unique_ptr<Communicator> split(int colour, int key) override;
  std::unique_ptr<Communicator> duplicate() override;
  void set_spinning(bool /*spinning*/) override {}  // it waits for the GPU, and lets others have the core
  void abort() override { aborted_.request_stop(); }

 private:
  /// A message under way. One without bytes has arrived at once.
  struct Message {
    Tensor tensor;
    std::shared_ptr<PointToPointBackend::Transfer> transfer = nullptr;
    bool is_done() const { return transfer == nullptr || transfer->is_done(); }
  };
  class Receive;
  using ErrorContext = ControlWait::ErrorContext;

  void exchange(const char* operation, const Tensor& like, ExchangeBuffers& buffers) override;
  bool sum_natively(Tensor& tensor) override;
  /// Begins a transfer by `call`. Throws CommError when that fails; then the backend's transfers are ended.
  template <class Call>
  auto begin(const Call& call, const ErrorContext& context);
  Message start(PointToPointBackend::Move::Direction direction, const Tensor& tensor, int peer, int tag);
  /// The oldest receive from rank `from` that nobody waits for, or a new one.
  Message post(const Shape& shape, DType dtype, int from, int tag);
  Tensor wait_for(Message& message, const ErrorContext& context);
  /// Moves on what was sent, and forgets what has arrived.
  void serve();
  /// Serves others until `done` holds. When that fails, the backend's transfers are ended.
  template <class Done>
  void wait(const Done& done, const ErrorContext& context);
  std::unique_ptr<PointToPointBackend> split_backend(int colour, int key, const char* operation);
  std::string key(const std::string& rest) const { return group().name + "/" + rest; }

  ControlChannel& control_;
  std::unique_ptr<PointToPointBackend> backend_;
  std::stop_source aborted_;
  std::deque<std::shared_ptr<Message>> outbox_;
  std::map<int, std::deque<Message>> unwanted_;  // receives that nobody waits for, by the rank that sends
  bool broken_ = false;
  int exceptions_before_;
};

}  // namespace stagecoach
