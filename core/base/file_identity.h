#pragma once
/// @file
/// Tells whether two names, or a name and an open file, refer to the same file.

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <optional>

namespace stagecoach {

/// Identifies a file or folder on this machine, whatever its name.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  bool operator==(const FileIdentity&) const = default;
};

FileIdentity identity_of(const struct stat& status);
/// Returns the identity of the file at `path`, following links, or nothing if there is no such file.
std::optional<FileIdentity> identity_of(const std::filesystem::path& path);
/// Returns the identity of an open file, or nothing if the descriptor is not open.
std::optional<FileIdentity> identity_of(int descriptor);

}  // namespace stagecoach
