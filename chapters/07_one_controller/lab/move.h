#pragma once
/// @file
/// Lab 7, part 1: a copy from one device to another for which the program does not wait.

#include "core/tensor.h"

namespace stagecoach::lab {

/// Returns a tensor on the device `to` with the elements of x, or x itself if it is there already. x is on another
/// asynchronous device, or on the host, and has no history.
///
/// - The copy is made by copy_async of core/transfer.h, and this function only appends it: the program waits for
///   nothing. copy_async lets the copy wait until x is computed.
/// - Every later operation on `to` that reads the result waits for the copy. That is yours to arrange, with the event
///   that copy_async returns. The library refuses an operation that does not wait.
/// - Tensor::to is not allowed: it does what you write here.
Tensor move(const Tensor& x, Device to);

}  // namespace stagecoach::lab
