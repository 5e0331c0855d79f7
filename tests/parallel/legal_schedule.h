#pragma once
/// @file
/// Generators as tests go through them: over many sizes, of which each takes some.

#include <optional>
#include <string>

#include "core/base/error.h"
#include "parallel/schedule/schedule_kinds.h"

namespace stagecoach::test {

/// The schedule of that name, or none where it refuses the sizes.
inline std::optional<Schedule> schedule_if_legal(const std::string& name, int p, int m, int v = 0, int group = 0) try {
  return make_schedule(name, p, m, v, group);
} catch (const UsageError&) {
  return std::nullopt;
}

}  // namespace stagecoach::test
