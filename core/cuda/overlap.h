#pragma once
/// @file
/// Kernels that begin before the last one has ended ("programmatic dependent launch"; CUDA C++ Programming Guide). From
/// the end of a kernel to the first instruction of the next pass a microsecond or more, which is much beside a small
/// kernel. With the permission to overlap, the next kernel's blocks are set up meanwhile, and wait.
///
/// What they wait for is the end of the last kernel and of all that it wrote: every kernel of core/kernels/cuda begins
/// with wait_for_earlier_kernels(). (Thrust's do not, nor do they overlap.) So nothing that a kernel does comes earlier
/// than without overlap. test_structure looks for kernels that do not begin so, and the emulation refuses those that
/// wait after a barrier or after shared memory.

#include "core/device.h"

namespace stagecoach::cuda {

/// Until the end of the scope the kernels that this thread gives to `device` may overlap. It is meant for recordings:
/// without them the CPU gives kernels more slowly than a GPU begins them. Does nothing where it cannot be: before
/// compute capability 9.0, and with code that was compiled for less.
class Overlap {
 public:
  explicit Overlap(Device device);
  ~Overlap();
  Overlap(const Overlap&) = delete;
  Overlap& operator=(const Overlap&) = delete;

 private:
  bool before_;
};

/// Whether this thread's kernels may overlap now.
bool kernels_overlap();

}  // namespace stagecoach::cuda
