#pragma once
/// @file
/// Loops over flat arrays, which the device's threads process in chunks of fixed size.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/kernels/cpu/vec.h"
#include "core/parallel_for.h"
#include "core/tensor.h"

namespace stagecoach::cpu {

/// Large enough that passing a chunk to another thread costs little, small enough for the second-level cache.
inline constexpr std::int64_t kChunk = 1 << 15;

/// Calls body(i) for all i in [0, count). The compiler can vectorize the inner loop, because body(i) may access only
/// elements i: arrays are either identical or disjoint, never shifted.
template <class Body>
void for_each_element(Device device, std::int64_t count, const Body& body) {
  parallel_for(device, (count + kChunk - 1) / kChunk, [&](std::int64_t chunk) {
    const std::int64_t end = std::min(count, (chunk + 1) * kChunk);
#ifdef __clang__
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
    for (std::int64_t i = chunk * kChunk; i < end; ++i) {
      body(i);
    }
  });
}

/// Computes to[i] = function(from[i]…) for all i in [0, count), a vector at a time. The last vector may be filled up
/// with zeros, so no element depends on its neighbours.
template <class T, class Function, class... From>
void map_vectors(Device device, std::int64_t count, const Function& function, T* to, const From*... from) {
  parallel_for(device, (count + kChunk - 1) / kChunk, [&](std::int64_t chunk) {
    const std::int64_t end = std::min(count, (chunk + 1) * kChunk);
    std::int64_t i = chunk * kChunk;
    for (; i + kLanes<T> <= end; i += kLanes<T>) {
      store(function(load(from + i)...), to + i);
    }
    if (i < end) {
      const auto bytes = static_cast<std::size_t>(end - i) * sizeof(T);
      const auto load_last = [&](const T* data) {
        Vec<T> last{};
        std::memcpy(&last, data + i, bytes);
        return last;
      };
      const Vec<T> results = function(load_last(from)...);
      std::memcpy(to + i, &results, bytes);
    }
  });
}

}  // namespace stagecoach::cpu
