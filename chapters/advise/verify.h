#pragma once
/// @file
/// Runs plans on the modelled clock, where times are computed: they must be what was predicted.

#include <string>

#include "chapters/advise/options.h"
#include "parallel/advise/advise.h"

namespace stagecoach {

/// Trains with each of the first `options.verify` plans, by the programs in `programs`, for a few batches of made-up
/// data and for one more: that one takes a step. Returns a table of predicted and run step times, and of memory. Throws
/// Error, which shows the command, if a program fails.
std::string verified_table(const AdviseOptions& options, const Advice& advice, const std::string& programs);

}  // namespace stagecoach
