#pragma once
/// @file
/// Whether two names, or a name and an open file, are the same file.

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <optional>

namespace stagecoach {

/// A file or folder on this machine, whatever its name.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  bool operator==(const FileIdentity&) const = default;
};

FileIdentity identity_of(const struct stat& status);
/// Follows links; nothing where there is no such file.
std::optional<FileIdentity> identity_of(const std::filesystem::path& path);
/// Returns the identity of an open file, or nothing if the descriptor is not open.
std::optional<FileIdentity> identity_of(int descriptor);

}  // namespace stagecoach
