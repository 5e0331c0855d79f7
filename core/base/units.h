#pragma once
/// @file
/// Units in which sizes are printed.

namespace stagecoach {

inline constexpr double kKiB = 1 << 10;  ///< in bytes
inline constexpr double kMiB = 1 << 20;

}  // namespace stagecoach
