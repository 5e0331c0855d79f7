#include "core/kernels/levels.h"

#include <fmt/format.h>

#include <cstdlib>
#include <vector>

#include "core/base/throw_if.h"

namespace stagecoach::cpu {

// STAGECOACH_HIGHER_LEVELS is a list such as LEVEL(3) LEVEL(4), for x86-64-v3 and x86-64-v4.
#define LEVEL(version) extern "C" const Tables* stagecoach_tables_of_x86_64_v##version();
STAGECOACH_HIGHER_LEVELS
#undef LEVEL

namespace {

/// The highest level whose instructions all code of this program may use.
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512CD__) && defined(__AVX512DQ__) && \
    defined(__AVX512VL__)
#define STAGECOACH_LOWEST_LEVEL "x86-64-v4"
#elif defined(__AVX2__) && defined(__BMI__) && defined(__BMI2__) && defined(__F16C__) && defined(__FMA__) && \
    defined(__LZCNT__) && defined(__MOVBE__)
#define STAGECOACH_LOWEST_LEVEL "x86-64-v3"
#elif defined(__SSE4_2__) && defined(__SSSE3__) && defined(__POPCNT__)
#define STAGECOACH_LOWEST_LEVEL "x86-64-v2"
#elif defined(__x86_64__)
#define STAGECOACH_LOWEST_LEVEL "x86-64"
#elif defined(__aarch64__)
#define STAGECOACH_LOWEST_LEVEL "arm64"
#else
#define STAGECOACH_LOWEST_LEVEL "generic"
#endif

/// "x86-64-v3", or "native (x86-64-v3)": what is compiled for one processor may use more than its level has.
std::string name_of_lowest() {
  const std::string level = STAGECOACH_LOWEST_LEVEL;
  const std::string arch = STAGECOACH_LOWEST_ARCH;  // what -march says, or nothing
  return arch.empty() || arch == level ? level : fmt::format("{} ({})", arch, level);
}

template <class Includes>
std::string names_of(std::span<const Level> levels, const Includes& includes) {
  std::vector<std::string_view> names;
  for (const Level& level : levels) {
    if (includes(level)) {
      names.push_back(level.name);
    }
  }
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

std::string names_of_all(std::span<const Level> levels) {
  return names_of(levels, [](const Level&) { return true; });
}

std::string names_of_supported(std::span<const Level> levels) {
  return names_of(levels, [](const Level& level) { return level.is_supported; });
}

}  // namespace

std::span<const Level> built_levels() {
  static const std::string lowest = name_of_lowest();
#define LEVEL(version) \
  {"x86-64-v" #version, __builtin_cpu_supports("x86-64-v" #version) != 0, stagecoach_tables_of_x86_64_v##version},
  // No program can check the lowest one: it is in all code, including this.
  static const Level levels[] = {{lowest, true, stagecoach_tables_of_lowest_level}, STAGECOACH_HIGHER_LEVELS};
#undef LEVEL
  return levels;
}

const Level& choose_level(std::span<const Level> levels, const char* requested) {
  const std::string_view name = requested == nullptr ? "" : requested;
  const Level* chosen = nullptr;
  for (const Level& level : levels) {
    if (name.empty() ? level.is_supported : level.name == name) {
      chosen = &level;
    }
  }
  throw_if<UsageError>(
      chosen == nullptr,
      "STAGECOACH_LEVEL: expected a level that this program was built for ({}), got '{}'; unset it, or "
      "build with -DSTAGECOACH_ARCH",
      names_of_all(levels), name);
  throw_if<UsageError>(!chosen->is_supported,
                       "STAGECOACH_LEVEL: expected a level that this processor supports ({}), got '{}'; unset it, or "
                       "run on another machine",
                       names_of_supported(levels), name);
  return *chosen;
}

const Level& level_in_use() {
  static const Level& level = choose_level(built_levels(), std::getenv("STAGECOACH_LEVEL"));
  return level;
}

std::string levels_help() {
  return fmt::format("CPU kernels: {}, of {}; STAGECOACH_LEVEL in the environment chooses another", level_in_use().name,
                     names_of_all(built_levels()));
}

}  // namespace stagecoach::cpu
