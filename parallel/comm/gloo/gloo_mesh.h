#pragma once
/// @file
/// The connections of a rank to all others by Gloo. Only sources that are built with Gloo include this header.
///
/// Gloo moves tensors on a thread of its own: a message travels when its sender has started it and its receiver has
/// posted a receive under the same slot. What Gloo does not do is done around it:
///  - Gloo would accept whoever connects to its ports first. Here ranks connect by themselves, admit only those that
///    know the run's token, and give Gloo the connections. After that no port is open.
///  - Gloo closes all connections when a single wait passes its deadline, and cannot say whether a message has arrived.
///    Here waits look at Gloo's counts, and have deadlines that can be renewed, and aborts.
///  - Gloo does not notice a lost connection in the middle of a message, nor say which process has died. The control
///    channel does.
///  - Gloo ends the process when a message is longer than its receive. Here the slot depends on the type of the tensor.
///  - A receive that Gloo has posted cannot be withdrawn. Its memory is kept, and the next receive takes it over.

#include <gloo/transport/tcp/unbound_buffer.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "parallel/comm/tcp/control_channel.h"
#include "parallel/comm/wait_policy.h"

namespace stagecoach {

/// A message, or the memory for one. It must not be destroyed before it is done, unless the mesh has ended.
class GlooBuffer final : public gloo::transport::tcp::UnboundBuffer {
 public:
  enum class Direction { out, in };
  /// `memory` owns the `bytes` at `data`. `peer` is the other rank.
  GlooBuffer(const std::shared_ptr<gloo::transport::tcp::Context>& context, Direction direction, int peer,
             std::shared_ptr<void> memory, void* data, std::size_t bytes)
      : UnboundBuffer(context, data, bytes), direction_(direction), peer_(peer), memory_(std::move(memory)) {}

  int peer() const { return peer_; }
  void start(std::uint64_t slot);
  /// Returns whether the message has been sent, or has arrived. Throws Gloo's exception if the connection is lost.
  bool is_done();
  /// Returns whether it is done, or the connection is lost.
  bool has_ended() noexcept;
  /// Waits until it may be done, at most for `longest`.
  void nap(std::chrono::milliseconds longest);

 private:
  bool has_completed() const { return (direction_ == Direction::out ? sendCompletions_ : recvCompletions_) > 0; }

  Direction direction_;
  int peer_;
  std::shared_ptr<void> memory_;
};

/// All threads of the rank may use it. Ranks are those of the world.
class GlooMesh {
 public:
  /// Connects to all other ranks, which all construct a mesh. `control` must outlive it. Throws CommError if a rank
  /// does not connect in time.
  GlooMesh(ControlChannel& control, const std::string& token, int rank, int size);
  ~GlooMesh();
  GlooMesh(const GlooMesh&) = delete;
  GlooMesh& operator=(const GlooMesh&) = delete;

  ControlChannel& control() { return control_; }
  int size() const { return size_; }

  // Errors begin with the text that `context` returns.
  /// Starts to send `bytes` at `data` under `slot`, or posts a receive.
  std::shared_ptr<GlooBuffer> start(GlooBuffer::Direction direction, int peer, std::uint64_t slot,
                                    std::shared_ptr<void> memory, void* data, std::size_t bytes,
                                    const ErrorContext& context);
  /// Calls `meanwhile` repeatedly.
  void wait(GlooBuffer& buffer, const WaitPolicy& policy, const ErrorContext& context,
            const std::function<void()>& meanwhile);
  bool is_done(GlooBuffer& buffer, const ErrorContext& context);
  /// Replaces `tensor` with the sum over all ranks of the world, by Gloo's own all-reduce. `tag` tells concurrent calls
  /// apart. Returns false if Gloo cannot sum that type. The wait is not renewed, and ends only at the timeout or when a
  /// connection is lost.
  bool all_reduce(Tensor& tensor, std::uint32_t tag, const ErrorContext& context);

  /// Keeps a buffer that is not done until the mesh ends.
  void leak(std::shared_ptr<GlooBuffer> buffer);
  /// Waits until all ranks have called it, so that no rank disconnects while another needs its messages. Returns early
  /// after the timeout, or when a rank has failed.
  void leave();

 private:
  class Context;

  void connect(const std::string& token);
  /// Returns what `call` returns, and throws CommError where it throws an exception of Gloo's.
  template <class Call>
  auto guarded(int peer, const ErrorContext& context, const Call& call);

  ControlChannel& control_;
  int rank_;
  int size_;
  std::shared_ptr<Context> context_;
  std::mutex mutex_;  // guards the member below
  std::vector<std::shared_ptr<GlooBuffer>> leaked_;
};

}  // namespace stagecoach
