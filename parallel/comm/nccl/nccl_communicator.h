#pragma once
/// @file
/// The communicator of ranks that have one GPU each: tensors travel over NCCL, through an interface that tests
/// implement without a GPU.
///
/// NCCL has no tags and no deadlines, and does not check types.
///  - A message is not announced: the sender begins it when it sends, the receiver when it posts its receive. Each
///    direction between two ranks has its own channel, so that a receive that is posted early delays only later
///    messages in that direction. Receives must be posted in the order in which the other rank sends. Schedules are
///    checked for that before they run; a mismatch that occurs nevertheless ends at the deadline or, where shapes are
///    the same, delivers the wrong tensor.
///  - A rank that waits polls whether the transfer has ended, whether another rank has failed or died, and whether the
///    deadline has passed. To end the wait, it aborts NCCL's communicators (ncclCommAbort). Neither rank knows the type
///    of the other's tensor, so each names its own in its error; the error of a rank that stops because the other has
///    failed names both.
///  - A posted receive cannot be withdrawn. If it is never waited for, the next receive posted for the same rank takes
///    it over; a receive of another type is then refused. A communicator that is destroyed with such receives left is
///    aborted.
/// Control messages: one per communicator and direction (to connect), one per number (send_number), and none per
/// tensor. Numbers are control messages, such as whether to stop. Over NCCL they would wait for all work queued on the
/// GPUs, and so would the program.

#include <fmt/format.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "parallel/comm/exchange_communicator.h"
#include "parallel/comm/point_to_point_backend.h"
#include "parallel/comm/tcp/control_channel.h"

namespace stagecoach {

class NcclCommunicator final : public ExchangeCommunicator {
 public:
  /// `control` is this rank's control channel in the world; `backend` belongs to this group alone. `group` must use the
  /// wall clock.
  NcclCommunicator(ControlChannel& control, std::unique_ptr<PointToPointBackend> backend, Group group);
  ~NcclCommunicator() override;

 private:
  /// A message under way. A message without bytes has already arrived.
  struct Message {
    Tensor tensor;
    std::shared_ptr<PointToPointBackend::Transfer> transfer = nullptr;
    bool is_done() const { return transfer == nullptr || transfer->is_done(); }
  };
  class Send;
  class Receive;

  std::shared_ptr<Outgoing> start_send(const Tensor& tensor, int to, int tag, const ErrorContext& context) override;
  std::shared_ptr<Incoming> post_receive(const Shape& shape, DType dtype, Device device, int from, int tag,
                                         const ErrorContext& context) override;
  void start_number(double number, int to, int tag, const ErrorContext& context) override;
  double wait_for_number(int from, int tag, const ErrorContext& context) override;
  std::optional<double> poll_number(int from, int tag, const ErrorContext& context) override;
  std::unique_ptr<Communicator> make_part(Group part) override;
  std::unique_ptr<Communicator> make_duplicate(Group copy) override;
  void exchange(const char* operation, const Tensor& like, ExchangeBuffers& buffers) override;
  bool sum_natively(Tensor& tensor) override;
  /// Returns what `call` returns. If it fails, ends the backend's transfers and throws CommError.
  template <class Call>
  auto guarded(const Call& call, const ErrorContext& context);
  Message start(PointToPointBackend::Move::Direction direction, const Tensor& tensor, int peer, int tag,
                const ErrorContext& context);
  /// Advances pending sends, and drops those that have completed.
  void serve();
  /// Advances pending sends until `done` holds.
  template <class Done>
  void wait(const Done& done, const ErrorContext& context);
  std::unique_ptr<PointToPointBackend> split_backend(int colour, int key, const char* operation);
  std::string key(const std::string& rest) const { return group().name + "/" + rest; }
  std::string number_key(int from, int tag) const { return key(fmt::format("number/{}/{}", from, tag)); }

  ControlChannel& control_;
  std::unique_ptr<PointToPointBackend> backend_;
  std::deque<std::shared_ptr<Message>> outbox_;
  std::multimap<int, Message> unclaimed_;  // receives that are no longer waited for, by sending rank
  bool broken_ = false;
  int exceptions_before_;
};

}  // namespace stagecoach
