#pragma once
/// @file
/// Policies for the versions of a stage's weights.
///
/// Version 0 exists at the start of a schedule; every update makes one more. A backward must use the version that its
/// forward used, or what it computes is not a gradient. So a stage keeps old versions while micro-batches that used
/// them are in flight. The policies differ in which version a forward uses.

#include <cstddef>
#include <string>
#include <vector>

namespace stagecoach {

/// The policies, described for p stages, counted from s = 0, on one rank each, with batches of one micro-batch (of p or
/// more for two_buffers). A delay is the number of updates by which a gradient is late. Sources: Narayanan et
/// al., "PipeDream", 2019, section 3.3; "Memory-efficient pipeline-parallel DNN training", 2021, section 3.1
/// (two_buffers).
enum class Versions {
  stash,        ///< the newest of the stage: delays of p - 1 - s, at most p - s versions
  vertical,     ///< the newest of stage 0 when the micro-batch entered: a delay of p - 1 on all stages, p versions
  two_buffers,  ///< the second newest when the batch begins: a delay of 1, two versions
  flush,        ///< the only one, as the pipeline is empty at every update: no delay
  none,         ///< the newest, and the backward uses the newest at its own time, which is wrong
};

/// Returns the names of the policies, in their order.
inline const std::vector<std::string>& version_names() {
  static const std::vector<std::string> names{"stash", "vertical", "2bw", "flush", "none"};
  return names;
}
inline std::string to_string(Versions versions) { return version_names()[static_cast<std::size_t>(versions)]; }

}  // namespace stagecoach
