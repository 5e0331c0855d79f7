#include "parallel/schedule/versions.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace stagecoach {

const std::vector<std::string>& version_names() {
  static const std::vector<std::string> names{"stash", "vertical", "2bw", "flush", "none"};
  return names;
}

std::string to_string(Versions versions) { return version_names()[static_cast<std::size_t>(versions)]; }

Versions versions_from_text(const std::string& text) {
  const auto& names = version_names();
  const auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end()) {
    throw UsageError(fmt::format("unknown policy of versions '{}'; known are {}", text, fmt::join(names, ", ")));
  }
  return static_cast<Versions>(found - names.begin());
}

}  // namespace stagecoach
