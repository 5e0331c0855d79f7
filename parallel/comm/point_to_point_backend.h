#pragma once
/// @file
/// The interface that moves tensors between the ranks of a group while they do other work: implemented by NCCL, and in
/// tests by a fake that needs no GPU.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/tensor.h"

namespace stagecoach {

/// A backend has failed; the communicator adds context.
class BackendError : public Error {
 public:
  using Error::Error;
};

/// One rank's end. It has a channel for messages in each direction between two ranks, and one channel for collectives.
/// A channel carries one transfer after another: a transfer that has begun blocks later ones until the other rank has
/// begun it too. So both ends of a channel must begin their transfers in the same order.
class PointToPointBackend {
 public:
  virtual ~PointToPointBackend() = default;
  PointToPointBackend() = default;
  PointToPointBackend(const PointToPointBackend&) = delete;
  PointToPointBackend& operator=(const PointToPointBackend&) = delete;

  /// A tensor of at least one byte to send to another rank or to receive from it.
  struct Move {
    enum class Direction { out, in };
    Direction direction;
    Tensor tensor;
    int peer;
    int tag = 0;  ///< not sent; a test's backend checks that both ends agree
  };
  /// Tensors whose transfer began in one call.
  class Transfer {
   public:
    virtual ~Transfer() = default;
    /// Returns, without waiting, whether the whole transfer is done. Throws BackendError.
    virtual bool is_done() = 0;
  };

  /// How ranks exchange the text they need to connect: once per direction, before the first message.
  struct Introductions {
    std::function<void(int to, const std::string& text)> tell;
    std::function<std::optional<std::string>(int from)> heard;  ///< nullopt until that rank's text has arrived
  };
  /// Must be called before the first message.
  virtual void introduce_by(Introductions introductions) = 0;

  // The following transfers begin when their channel is free and the device has finished the work queued so far. The
  // calls do not wait.
  virtual std::shared_ptr<Transfer> start(Move message) = 0;
  /// Collective, as is all_reduce: all ranks call the two in the same order.
  virtual std::shared_ptr<Transfer> exchange(std::vector<Move> moves) = 0;
  /// Replaces `tensor` with the sum over all ranks, added in the backend's own order.
  virtual std::shared_ptr<Transfer> all_reduce(Tensor tensor) = 0;

  /// Advances pending transfers as far as possible without waiting. Called repeatedly during a wait.
  virtual void advance() = 0;
  /// Called repeatedly during a wait; throws to end it.
  using Poll = std::function<void()>;
  /// Returns the backend of the ranks that pass the same `colour`, which must not be negative, ordered by `key`. All
  /// ranks call it.
  virtual std::unique_ptr<PointToPointBackend> split(int colour, int key, const Poll& poll) = 0;

  /// Ends all pending transfers: nothing arrives any more.
  virtual void abort() noexcept = 0;
  /// Disconnects from the other ranks after all transfers are done; waits at most a second for them.
  virtual void close() noexcept = 0;
};

}  // namespace stagecoach
