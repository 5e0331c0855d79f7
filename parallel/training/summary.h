#pragma once
/// @file
/// The five numbers with which every chapter answers what it changes, what that buys and what it costs.

#include <string>
#include <vector>

#include "parallel/training/epoch_log.h"

namespace stagecoach {

/// Returns a table of the step time, the idle share, the memory per rank, the bytes per link and direction, and the
/// staleness of the gradients. Times and shares are medians without the first epoch, in which caches and buffers are
/// still cold, unless it is the only one. There must be at least one epoch. `place` is what has memory and links: a
/// rank, or a device where one program drives them all.
std::string summary(const std::vector<EpochResult>& epochs, const char* place = "rank");

}  // namespace stagecoach
