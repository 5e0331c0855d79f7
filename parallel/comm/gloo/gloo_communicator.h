#pragma once
/// @file
/// The communicator of ranks that are processes and communicate by Gloo. Only sources that are built with Gloo include
/// this header.
///
/// A tensor is a first message, which begins with a header that describes it and contains all of a short tensor, and a
/// second message with a longer one. Numbers go over the control channel.

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/exchange_communicator.h"
#include "parallel/comm/gloo/gloo_mesh.h"
#include "parallel/comm/message_header.h"
#include "parallel/comm/timed_receives.h"

namespace stagecoach {

class GlooCommunicator final : public ExchangeCommunicator {
 public:
  /// `group` must use the CPU. `receives` belongs to the thread that uses this communicator.
  GlooCommunicator(GlooMesh& mesh, Group group, std::shared_ptr<TimedReceives> receives);
  ~GlooCommunicator() override;

 private:
  class Send;
  class Receive;
  using BufferPtr = std::shared_ptr<GlooBuffer>;
  enum class Kind { message, exchange, completed };

  struct PostedBuffer {
    BufferPtr buffer;
    Tensor tensor = {};  ///< the memory of a second message
  };
  /// The receives posted for one slot. The oldest buffer gets the next message, which is for the oldest receive that
  /// has not been withdrawn: receive i gets buffer i.
  struct Lane {
    std::deque<PostedBuffer> buffers;
    std::deque<const Receive*> receives;
  };

  std::shared_ptr<Outgoing> start_send(const Tensor& tensor, int to, int tag, const ErrorContext& context) override;
  std::shared_ptr<Incoming> post_receive(const Shape& shape, DType dtype, Device device, int from, int tag,
                                         const ErrorContext& context) override;
  void start_number(double number, int to, int tag, const ErrorContext& context) override;
  double wait_for_number(int from, int tag, const ErrorContext& context) override;
  std::optional<double> poll_number(int from, int tag, const ErrorContext& context) override;
  void exchange(const char* operation, const Tensor& like, ExchangeBuffers& buffers) override;
  bool sum_natively(Tensor& tensor) override;
  std::unique_ptr<Communicator> make_part(Group part) override;
  std::unique_ptr<Communicator> make_duplicate(Group copy) override;

  /// Returns the slot of first messages from rank `from` of the group.
  std::uint64_t slot_of(Kind kind, int from, int tag) const;
  /// Starts both messages of a tensor.
  std::vector<BufferPtr> send(Kind kind, const MessageHeader& header, const Tensor& tensor, int to, int tag,
                              const ErrorContext& context);
  PostedBuffer post_first(std::uint64_t slot, int from, const ErrorContext& context);
  PostedBuffer post_rest(std::uint64_t slot, const Tensor& into, int from, const ErrorContext& context);
  /// Waits for the messages of another rank in an exchange. Throws CommError if it is in another one.
  void receive(const char* operation, const Tensor& like, const PostedBuffer& first, const PostedBuffer& rest,
               Tensor& into, int from);
  void wait(GlooBuffer& buffer, const ErrorContext& context);
  /// Keeps what is sent until it is done.
  void keep(const BufferPtr& sent);
  std::string number_key(int from, int tag) const;

  GlooMesh& mesh_;
  std::uint64_t name_;  // the group's name, as part of a slot
  std::shared_ptr<TimedReceives> receives_;
  std::deque<BufferPtr> sent_;
  std::map<std::uint64_t, Lane> lanes_;
};

}  // namespace stagecoach
