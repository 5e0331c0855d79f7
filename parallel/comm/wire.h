#pragma once
/// @file
/// What moves tensors between the ranks of a group, in the background: NCCL, and in tests something that needs no GPU.

#include <functional>
#include <memory>
#include <vector>

#include "core/error.h"
#include "core/tensor.h"

namespace stagecoach {

/// A wire has failed; the communicator adds in what.
class WireError : public Error {
 public:
  using Error::Error;
};

/// One rank's end. It has two lanes, and each carries one transfer after another: one that has begun keeps those behind
/// it waiting until the other rank has begun it too.
class Wire {
 public:
  virtual ~Wire() = default;
  Wire() = default;
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  /// A tensor with at least one byte that goes to another rank or comes from it.
  struct Move {
    enum class Way { out, in };
    Way way;
    Tensor tensor;
    int peer;
  };
  enum class Lane { up, down };
  /// Moves that began together.
  class Transfer {
   public:
    virtual ~Transfer() = default;
    /// Whether all of them are done. Does not wait. Throws WireError.
    virtual bool is_done() = 0;
  };

  /// Begins `moves` when the lane is free and the device has done what it was given so far. Does not wait.
  virtual std::shared_ptr<Transfer> start(Lane lane, std::vector<Move> moves) = 0;

  /// Is called again and again during a wait, and throws to end it.
  using Look = std::function<void()>;
  /// The wire of those that give the same `colour`, which is not negative, ordered by `key`. All ranks call it.
  virtual std::unique_ptr<Wire> split(int colour, int key, const Look& look) = 0;

  /// Ends what is under way: nothing arrives any more.
  virtual void abort() noexcept = 0;
  /// All is done: lets go of the others, or gives up after a second.
  virtual void close() noexcept = 0;
};

}  // namespace stagecoach
