#pragma once
/// @file
/// Lab 2, first part: all ranks send at once, and none waits forever.

#include "parallel/comm/communicator.h"

namespace stagecoach::lab {

/// Every rank passes its tensor on by `distance` ranks, and returns the one that it gets: with p ranks, the tensor
/// of rank r goes to rank (r + distance) mod p, a number from 0 to p - 1. All ranks call it with the same `distance`,
/// which may be negative, 0, or larger than p, and with tensors of one shape and type.
///
/// - Only comm.send and comm.receive are allowed: both wait for the other side. (send_async would make it too easy, and
///   not every transport has it.)
/// - Each rank sends one message. If its tensor comes back to itself, it sends none and returns `mine` or a copy of it.
Tensor shift(Communicator& comm, const Tensor& mine, int distance);

}  // namespace stagecoach::lab
