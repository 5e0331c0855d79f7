#pragma once
/// @file
/// What the rest of the core asks of the CUDA backend. A build without CUDA links `no_cuda.cpp`, in which
/// every function throws UsageError by name; callers need no preprocessor.

namespace stagecoach {

class Allocator;
class Kernels;

namespace cuda {

/// Throws UsageError, saying why, unless GPU `index` can be used.
void require_device(int index);
/// The allocator of GPU `index`.
stagecoach::Allocator& allocator(int index);
/// The operations of a GPU.
const Kernels& kernels();

}  // namespace cuda
}  // namespace stagecoach
