#pragma once
/// @file
/// One run at a time writes into a folder.

#include <filesystem>

namespace stagecoach {

/// Keeps other runs out of a folder while it lives.
class FolderLock {
 public:
  FolderLock() = default;
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  /// Locks `folder`, and lets go of the one that it had. Throws UsageError when another run holds the folder, DataError
  /// when it cannot be opened.
  void take(const std::filesystem::path& folder);
  /// Whether the folder of that name is still the locked one: neither removed nor replaced.
  bool holds(const std::filesystem::path& folder) const;

 private:
  int descriptor_ = -1;
};

}  // namespace stagecoach
