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
  std::filesystem::path folder() const;
  void sync_folder() const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
};

/// Whether `path` is the temporary name of such a file. One stays behind when a process is killed while it writes.
bool is_temporary(const std::filesystem::path& path);

}  // namespace stagecoach
