#pragma once
/// @file
/// The check that the ranks of a cut layer can have slices of equal size.

#include <cstdint>

#include "core/base/throw_if.h"

namespace stagecoach {

/// Throws UsageError unless `ranks` divides `count`; `what` names what is cut, such as "channels".
inline void require_divisible(const char* what, std::int64_t count, int ranks) {
  throw_if<UsageError>(count % ranks != 0,
                       "tensor parallelism: expected a number of {} that {} ranks can share equally, got {}; use a "
                       "number of tensor-parallel ranks that divides it",
                       what, ranks, count);
}

}  // namespace stagecoach
