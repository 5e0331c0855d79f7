#pragma once
/// @file
/// Writing a file so that a reader, or a machine that loses power, sees the old one or the new one, never a part.

#include <cstddef>
#include <filesystem>
#include <string_view>

namespace stagecoach {

/// A file that appears under its name all at once, or not at all: it is written under a temporary name in the same
/// folder, which `commit` syncs to the disk and renames. Without `commit` nothing remains, and an older file stays as
/// it was. Every failure is a DataError that tells path and reason.
///
/// Only a regular file is ever replaced. What else may be under the name:
/// - a symbolic link stays, and what it points to is replaced, or made where nothing is yet;
/// - a character device, a FIFO that is being read, and whatever standard output or standard error goes to
///   (/dev/stdout) are written to as they are, at once: they have no older contents to keep;
/// - a folder, a socket, a block device and a FIFO that nobody reads are refused.
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

  std::filesystem::path path_;       // as it was given
  std::filesystem::path target_;     // that, or where its symbolic links lead
  std::filesystem::path temporary_;  // empty while nothing is to be renamed
  int descriptor_ = -1;
};

/// Removes the temporary files in `folder` that killed programs left there, but not those that a living one is writing.
/// Throws DataError when the folder cannot be read.
void remove_abandoned_files(const std::filesystem::path& folder);

}  // namespace stagecoach
