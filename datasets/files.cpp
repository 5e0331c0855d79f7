#include "datasets/files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "core/base/memory_limits.h"
#include "core/base/throw_if.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

std::string reason(int error) { return std::generic_category().message(error); }

}  // namespace

std::vector<fs::path> list_folder(const fs::path& folder, std::int64_t* hidden) {
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  throw_if<DataError>(!fs::exists(status), "folder {} is missing; {}", folder.string(), kHowToGetData);
  throw_if<DataError>(!fs::is_directory(status), "{} is not a folder; give the folder that contains the data",
                      folder.string());
  std::vector<fs::path> entries;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (!entry->path().filename().string().starts_with('.')) {
      entries.push_back(entry->path());
    } else if (hidden != nullptr) {
      ++*hidden;
    }
  }
  if (error) {
    throw DataError(
        fmt::format("folder {} cannot be read: {}; check its permissions", folder.string(), error.message()));
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

FileReader::FileReader(const fs::path& path) : path_(path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  throw_if<DataError>(fs::is_directory(status), "{}: expected a file, got a folder", path.string());
  // A pipe or device would block or never end.
  throw_if<DataError>(fs::exists(status) && !fs::is_regular_file(status),
                      "{} is not a regular file; replace it with one", path.string());
  file_.reset(std::fopen(path.c_str(), "rbe"));
  if (file_ == nullptr) {
    throw DataError(
        fmt::format("{} cannot be opened: {}; check the path and its permissions", path.string(), reason(errno)));
  }
  size_ = static_cast<std::int64_t>(fs::file_size(path, error));
  if (error) {
    throw DataError(fmt::format("{} cannot be read: {}; check its permissions", path.string(), error.message()));
  }
}

void FileReader::read(void* target, std::size_t bytes) {
  const std::size_t got = std::fread(target, 1, bytes, file_.get());
  if (got != bytes) {
    const bool failed = std::ferror(file_.get()) != 0;
    throw DataError(fmt::format("{}: reading failed at byte {}: {}", path_.string(),
                                position_ + static_cast<std::int64_t>(got),
                                failed ? reason(errno) : "the file was truncated while it was being read"));
  }
  position_ += static_cast<std::int64_t>(bytes);
}

void FileReader::read_at(std::int64_t position, void* target, std::size_t bytes) const {
  struct ::stat now = {};
  const int descriptor = ::fileno(file_.get());
  throw_if<DataError>(
      ::fstat(descriptor, &now) == 0 && now.st_size != size_,
      "{} changed while it was in use: expected {} bytes as when it was opened, got {}; start again with "
      "files that nothing writes to",
      path_.string(), size_, static_cast<std::int64_t>(now.st_size));
  for (std::size_t done = 0; done < bytes;) {
    const ::ssize_t got = ::pread(descriptor, static_cast<std::byte*>(target) + done, bytes - done,
                                  static_cast<::off_t>(position) + static_cast<::off_t>(done));
    if (got > 0) {
      done += static_cast<std::size_t>(got);
    } else if (got == 0 || errno != EINTR) {
      throw DataError(fmt::format("{}: reading failed at byte {}: {}", path_.string(),
                                  position + static_cast<std::int64_t>(done),
                                  got == 0 ? "the file was truncated while it was being read" : reason(errno)));
    }
  }
}

std::vector<std::uint8_t> read_file(const fs::path& path) {
  FileReader file(path);
  require_memory_for(path.string(), static_cast<std::uint64_t>(file.size()));
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(file.size()));
  file.read(bytes.data(), bytes.size());
  return bytes;
}

std::vector<std::string> read_lines(const fs::path& path) {
  std::vector<std::string> lines(1);
  for (const std::uint8_t byte : read_file(path)) {
    if (byte != '\n' && byte != '\r') {
      lines.back() += static_cast<char>(byte);
    } else if (!lines.back().empty()) {
      lines.emplace_back();
    }
  }
  if (lines.back().empty()) {
    lines.pop_back();
  }
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // editors of Windows put it before a text
  if (!lines.empty() && lines.front().starts_with(kByteOrderMark)) {
    lines.front().erase(0, kByteOrderMark.size());
  }
  return lines;
}

}  // namespace stagecoach
