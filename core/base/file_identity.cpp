#include "core/base/file_identity.h"

namespace stagecoach {

FileIdentity identity_of(const struct stat& status) { return {status.st_dev, status.st_ino}; }

std::optional<FileIdentity> identity_of(const std::filesystem::path& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? std::optional(identity_of(status)) : std::nullopt;
}

std::optional<FileIdentity> identity_of(int descriptor) {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 ? std::optional(identity_of(status)) : std::nullopt;
}

}  // namespace stagecoach
