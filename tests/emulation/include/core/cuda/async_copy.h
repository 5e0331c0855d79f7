#pragma once
/// @file
/// Asynchronous copies on a CPU, in place of the header of this name in core/. They are done at once.

#include <algorithm>

namespace stagecoach::cuda {

inline void start_copy(float* shared, const float* global) { std::copy_n(global, 4, shared); }
inline void wait_for_copies() {}

}  // namespace stagecoach::cuda
