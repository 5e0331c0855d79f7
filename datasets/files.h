#pragma once
/// @file
/// Files and folders whose every failure is a DataError that names the path.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

namespace stagecoach {

/// The end of an error about missing data.
inline constexpr std::string_view kHowToGetData =
    "scripts/download_cifar10.sh gets CIFAR-10, and --data generated needs no files";

/// The entries of `folder`, sorted by name; hidden entries (".name") are left out.
/// Throws when the folder is missing, is not a folder, or cannot be read.
std::vector<std::filesystem::path> list_folder(const std::filesystem::path& folder);

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using FileHandle = std::unique_ptr<std::FILE, CloseFile>;

/// A regular file, read from front to back.
class FileReader {
 public:
  /// Throws when there is no such file, it is a folder or a device, or it cannot be opened.
  explicit FileReader(const std::filesystem::path& path);

  /// In bytes, as it was when the file was opened.
  std::int64_t size() const { return size_; }
  /// The next `bytes` bytes. Throws with the position when the file ends before.
  void read(void* target, std::size_t bytes);

 private:
  std::filesystem::path path_;
  FileHandle file_;
  std::int64_t size_ = 0;
  std::int64_t position_ = 0;
};

std::vector<std::uint8_t> read_file(const std::filesystem::path& path);

}  // namespace stagecoach
