#pragma once
/// @file
/// The pause between two polls of a value that another thread will change.

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace stagecoach {

/// Tells the core that this thread is spinning; pauses for some tens of cycles.
inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace stagecoach
