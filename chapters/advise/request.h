#pragma once
/// @file
/// What the advisor is asked, according to the flags.

#include "chapters/advise/options.h"
#include "parallel/advise/candidate.h"

namespace stagecoach {

/// Returns the request of `options`, which must outlive it. Throws DataError for a profile that cannot be read, and
/// UsageError for two of the same micro-batches.
AdviceRequest request_of(const AdviseOptions& options);

}  // namespace stagecoach
