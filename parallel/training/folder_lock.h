#pragma once
/// @file
/// A lock that lets one run at a time write to a folder.

#include <filesystem>

namespace stagecoach {

/// Keeps other runs from writing to a folder during the lifetime of the object.
class FolderLock {
 public:
  FolderLock() = default;
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  /// Locks `folder`, and releases the previous one. Throws UsageError if another run has locked the folder, and
  /// DataError if it cannot be opened.
  void take(const std::filesystem::path& folder);
  /// Returns whether `folder` is still the locked folder: neither removed nor replaced.
  bool holds(const std::filesystem::path& folder) const;

 private:
  int descriptor_ = -1;
};

}  // namespace stagecoach
