#pragma once
/// @file
/// Access to files and folders. Every failure is a DataError that names the path.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace stagecoach {

/// The end of an error about missing data.
inline constexpr std::string_view kHowToGetData =
    "run scripts/download_cifar10.sh to download CIFAR-10, or use the data set `generated`, which needs no files";

/// Returns the entries of `folder`, sorted by name, without hidden entries (".name"), which `hidden` counts. Throws if
/// the folder is missing, is not a folder, or cannot be read.
std::vector<std::filesystem::path> list_folder(const std::filesystem::path& folder, std::int64_t* hidden = nullptr);

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using FileHandle = std::unique_ptr<std::FILE, CloseFile>;

/// A regular file, read sequentially, or anywhere.
class FileReader {
 public:
  /// Throws if there is no such file, if it is a folder or a device, or if it cannot be opened.
  explicit FileReader(const std::filesystem::path& path);

  /// Returns the size in bytes when the file was opened.
  std::int64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }
  /// Returns where read() reads next.
  std::int64_t position() const { return position_; }
  /// Reads the next `bytes` bytes. Throws, with the position, if the file ends earlier.
  void read(void* target, std::size_t bytes);
  /// Reads `bytes` bytes at `position`. Throws if the file's size is not that when it was opened. Any thread may call
  /// it.
  void read_at(std::int64_t position, void* target, std::size_t bytes) const;

 private:
  std::filesystem::path path_;
  FileHandle file_;
  std::int64_t size_ = 0;
  std::int64_t position_ = 0;
};

std::vector<std::uint8_t> read_file(const std::filesystem::path& path);
/// Returns the lines of a text that are not empty, whatever ends them, without a byte order mark.
std::vector<std::string> read_lines(const std::filesystem::path& path);

}  // namespace stagecoach
