#pragma once
/// @file
/// Writes a file so that a reader, even after a power failure, sees either the old contents or the new ones, never a
/// part.

#include <cstddef>
#include <filesystem>
#include <string_view>

namespace stagecoach {

/// A file that appears under its name all at once, or not at all: it is written under a temporary name in the same
/// folder; `commit` syncs it to the disk and renames it. Without `commit` nothing remains, and an older file is
/// unchanged. Every failure is a DataError that states the path and the reason.
///
/// Only a regular file is ever replaced. Other kinds of file under the name are treated as follows:
/// - a symbolic link is kept, and its target is replaced, or created if there is none;
/// - a character device, a FIFO that is being read, and the target of standard output or standard error (/dev/stdout)
///   are written to directly and at once: they have no older contents to keep;
/// - a folder, a socket, a block device and a FIFO without a reader are refused.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, std::size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void commit();

 private:
  void open_temporary();
  std::filesystem::path folder() const;
  void sync_folder() const;

  std::filesystem::path path_;       // as given
  std::filesystem::path target_;     // `path_`, or the target of its symbolic links
  std::filesystem::path temporary_;  // empty if there is nothing to rename
  int descriptor_ = -1;
};

/// Removes the temporary files that killed programs left in `folder`, but not those that a running program is writing.
/// Throws DataError if the folder cannot be read.
void remove_abandoned_files(const std::filesystem::path& folder);

}  // namespace stagecoach
