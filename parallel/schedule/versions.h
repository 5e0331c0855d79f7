#pragma once
/// @file
/// Policies for the versions of a stage's weights.
///
/// Version 0 is there at the start of a schedule; every update makes one more. A backward must use the version of its
/// forward, or what it computes is not a gradient. So a stage keeps old versions while micro-batches that used them are
/// on their way. Policies differ in which version a forward takes.

#include <string>
#include <vector>

namespace stagecoach {

/// For p stages, stage s from 0, on one rank each, and batches of one micro-batch (of p and more for two_buffers). A
/// delay is the number of updates by which a gradient comes too late. Sources: Narayanan et al., "PipeDream", 2019,
/// section 3.3; "Memory-efficient pipeline-parallel DNN training", 2021, section 3.1 (two_buffers).
enum class Versions {
  stash,        ///< the newest of its stage: delays of p - 1 - s, at most p - s versions
  vertical,     ///< the one that stage 0 had when the micro-batch entered: a delay of p - 1 on all stages, p versions
  two_buffers,  ///< the one before the last when its batch begins: a delay of 1, two versions
  flush,        ///< the only one, as the pipeline is empty at every update: no delay
  none,         ///< the newest; and the backward takes the one that is the newest then, which is wrong
};

/// "stash", "vertical", "2bw", "flush", "none": in that order.
const std::vector<std::string>& version_names();
std::string to_string(Versions versions);

}  // namespace stagecoach
