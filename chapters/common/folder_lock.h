#pragma once
/// @file
/// A lock that lets one run at a time write to a folder.

#include <filesystem>

namespace stagecoach {

/// Keeps other runs out of a folder as long as it exists.
class FolderLock {
 public:
  FolderLock() = default;
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  /// Locks `folder`, and releases the one that it held. Throws UsageError when another run holds the folder, DataError
  /// when it cannot be opened.
  void take(const std::filesystem::path& folder);
  /// Whether the folder of that name is still the locked one, neither removed nor replaced.
  bool holds(const std::filesystem::path& folder) const;

 private:
  int descriptor_ = -1;
};

}  // namespace stagecoach
