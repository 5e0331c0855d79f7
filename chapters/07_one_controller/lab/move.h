#pragma once
/// @file
/// Lab 7, part 1: a copy from one device to another that runs beside the work of both, and for which the program does
/// not wait.

#include "core/stream.h"
#include "core/tensor.h"

namespace stagecoach::lab {

/// A tensor that is on its way to a device, or there already.
struct Move {
  Tensor tensor;  ///< on the device that it moves to; its memory is there at once, its elements after `arrived`
  Event arrived;  ///< after the copy; never recorded if there was nothing to copy
};

/// Begins to move x to the device `to`. The call that computes x is the last one of its device so far; or x is on the
/// host, or on `to`. x has no history.
///
/// - copy_async of core/transfer.h makes the copy, and this function only appends it: the program waits for nothing.
/// - The copy waits for x, and for no other work. `to` may still be busy with earlier micro-batches; it does not know
///   the new memory, so the copy need not wait for it.
/// - Nothing on `to` waits for the copy yet: what is appended to `to` before finish_move runs beside it.
/// - Tensor::to is not allowed: it does what you write here.
Move start_move(const Tensor& x, Device to);

/// Returns move.tensor. Every operation that is appended to its device from now on waits until the tensor has arrived,
/// and the program waits for nothing. The library refuses an operation that reads the tensor and does not wait.
Tensor finish_move(const Move& move);

}  // namespace stagecoach::lab
