#pragma once
/// @file
/// Units in which the chapters print.

namespace stagecoach {

inline constexpr double kMiB = 1 << 20;  ///< in bytes

}  // namespace stagecoach
