#pragma once
/// @file
/// The GPUs that the emulation pretends to have; tests change them to see what is said about other ones.

#include <atomic>
#include <cstddef>

namespace stagecoach::cuda::emulation {

struct Machine {
  int devices = 2;                            ///< with CUDA_VISIBLE_DEVICES=0, one
  int driver_version = 13000;                 ///< as CUDA counts; 0: there is no driver
  std::size_t memory = std::size_t{2} << 30;  ///< bytes of each GPU
};

/// Changed only while no device is in use.
Machine& machine();

/// How many kernels, passes of Thrust, copies and fills the GPUs were given so far.
std::atomic<long>& pieces_of_work();

/// How many waits for events their streams were given.
std::atomic<long>& stream_waits();

}  // namespace stagecoach::cuda::emulation
