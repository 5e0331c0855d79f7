#pragma once
/// @file
/// What moves tensors between the ranks of a group while they do other work: NCCL, and in tests a stand-in that needs
/// no GPU.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/tensor.h"

namespace stagecoach {

/// A backend has failed; the communicator adds the context.
class BackendError : public Error {
 public:
  using Error::Error;
};

/// One rank's end. It has a channel for each direction between two ranks, for messages, and one for what all ranks do
/// together. A channel carries one transfer after another: one that has begun keeps those behind it waiting until the
/// other rank has begun it too. So both ends of a channel begin their transfers in the same order.
class PointToPointBackend {
 public:
  virtual ~PointToPointBackend() = default;
  PointToPointBackend() = default;
  PointToPointBackend(const PointToPointBackend&) = delete;
  PointToPointBackend& operator=(const PointToPointBackend&) = delete;

  /// A tensor with at least one byte that goes to another rank or comes from it.
  struct Move {
    enum class Direction { out, in };
    Direction direction;
    Tensor tensor;
    int peer;
    int tag = 0;  ///< is not sent; a test's backend checks that both ends have the same
  };
  /// What began at once.
  class Transfer {
   public:
    virtual ~Transfer() = default;
    /// Whether all of it is done. Does not wait. Throws BackendError.
    virtual bool is_done() = 0;
  };

  /// How a rank sends another one what it needs to connect: once per direction, before the first message.
  struct Introductions {
    std::function<void(int to, const std::string& text)> tell;
    std::function<std::optional<std::string>(int from)> heard;  ///< nothing as long as that has told nothing
  };
  /// Before the first message.
  virtual void introduce_by(Introductions introductions) = 0;

  // These begin when their channel is free and the device has done what it was given so far. They do not wait.
  virtual std::shared_ptr<Transfer> start(Move message) = 0;
  /// All ranks call these two, in the same order.
  virtual std::shared_ptr<Transfer> exchange(std::vector<Move> moves) = 0;
  /// Replaces `tensor` by the sum over all ranks, in the backend's own order.
  virtual std::shared_ptr<Transfer> all_reduce(Tensor tensor) = 0;

  /// Moves on what has begun, as far as it can without waiting. Is called again and again during a wait.
  virtual void advance() = 0;
  /// Is called again and again during a wait, and throws to end it.
  using Poll = std::function<void()>;
  /// The backend of those that give the same `colour`, which is not negative, ordered by `key`. All ranks call it.
  virtual std::unique_ptr<PointToPointBackend> split(int colour, int key, const Poll& poll) = 0;

  /// Ends what is under way: nothing arrives any more.
  virtual void abort() noexcept = 0;
  /// All is done: disconnects from the others; waits a second for them at most.
  virtual void close() noexcept = 0;
};

}  // namespace stagecoach
