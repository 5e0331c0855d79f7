#include "parallel/schedule/versions.h"

namespace stagecoach {

const std::vector<std::string>& version_names() {
  static const std::vector<std::string> names{"stash", "vertical", "2bw", "flush", "none"};
  return names;
}

std::string to_string(Versions versions) { return version_names()[static_cast<std::size_t>(versions)]; }

}  // namespace stagecoach
