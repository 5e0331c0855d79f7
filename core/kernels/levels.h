#pragma once
/// @file
/// The levels of processors for which this program has CPU kernels. A program built on one machine runs on another:
/// everything is compiled for the first level of the CMake variable STAGECOACH_ARCH, and the sources in
/// core/kernels/cpu once more for each further level. A program uses the highest level that its processor supports.
///
/// Kernels of one level compute the same bytes on every processor. Those of two levels add in another order, and one
/// may fuse a multiplication and an addition where the other rounds twice, so their results differ in the last bits.

#include <span>
#include <string>
#include <string_view>

// Extern "C", so that the build can keep these names while it hides all others of a level (cmake/Levels.cmake).
#ifndef STAGECOACH_TABLES_OF_LEVEL
#define STAGECOACH_TABLES_OF_LEVEL stagecoach_tables_of_lowest_level
#endif

namespace stagecoach::cpu {

struct Tables;
extern "C" const Tables* STAGECOACH_TABLES_OF_LEVEL();

struct Level {
  std::string_view name;  ///< as the compiler's -march calls it: "x86-64-v3"
  bool is_supported;      ///< by this machine's processor
  const Tables* (*tables)();
};

/// Returns the levels that were built, the lowest first.
std::span<const Level> built_levels();

/// Returns the highest supported one of `levels` or, unless `requested` is null or empty, the one of that name. Throws
/// UsageError if there is no such level, or if it is not supported.
const Level& choose_level(std::span<const Level> levels, const char* requested);

/// Returns the level of this process, chosen at the first call; the environment variable STAGECOACH_LEVEL overrides the
/// choice. Throws UsageError as choose_level does.
const Level& level_in_use();

/// Returns a sentence for people: what levels there are, and which is in use.
std::string levels_help();

}  // namespace stagecoach::cpu
