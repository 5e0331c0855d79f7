#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/labs/descendants.h"

namespace stagecoach::labs {

void adopt_descendants() {}

std::vector<pid_t> children() { return {}; }

std::optional<double> processor_seconds(pid_t) { return std::nullopt; }

void end_with_parent() {}

void close_descriptors_from(int first) {
  std::vector<int> open;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/fd")) {
    open.push_back(std::stoi(entry.path().filename().string()));
  }
  for (const int descriptor : open) {
    if (descriptor >= first) {
      ::close(descriptor);  // that of the list is closed already
    }
  }
}

}  // namespace stagecoach::labs
