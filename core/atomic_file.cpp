#include "core/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = ".stagecoach-";

[[noreturn]] void refuse(const fs::path& path, const char* what, int error) {
  throw DataError(fmt::format("cannot write '{}': {}: {}; check the folder, its permissions and the free space",
                              path.string(), what, std::strerror(error)));
}

}  // namespace

AtomicFile::AtomicFile(const fs::path& path) : path_(path) {
  static std::atomic<unsigned> counter = 0;
  do {
    // Short, so that it fits where the file's own name fits; new even if an earlier process was killed.
    temporary_ = folder() / fmt::format("{}{}-{}", kPrefix, ::getpid(), counter++);
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (descriptor_ < 0 && (errno == EEXIST || errno == EINTR));
  if (descriptor_ < 0) {
    refuse(path_, "making a temporary file beside it", errno);
  }
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
  if (!temporary_.empty()) {
    ::unlink(temporary_.c_str());
  }
}

void AtomicFile::write(const void* data, std::size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor_, next, bytes);
    if (written < 0 && errno != EINTR) {
      refuse(path_, "writing", errno);
    }
    next += written < 0 ? 0 : written;
    bytes -= written < 0 ? 0 : static_cast<std::size_t>(written);
  }
}

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0) {
    refuse(path_, "syncing", errno);
  }
  if (::close(std::exchange(descriptor_, -1)) != 0) {
    refuse(path_, "closing", errno);
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    refuse(path_, "renaming", errno);
  }
  temporary_.clear();
  sync_folder();
}

fs::path AtomicFile::folder() const { return path_.has_parent_path() ? path_.parent_path() : fs::path("."); }

/// Makes the new name survive a loss of power. File systems that cannot sync a folder say EINVAL.
void AtomicFile::sync_folder() const {
  const int folder_descriptor = ::open(folder().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_descriptor < 0) {
    refuse(path_, "opening its folder to sync it", errno);
  }
  const int error = ::fsync(folder_descriptor) == 0 ? 0 : errno;
  ::close(folder_descriptor);
  if (error != 0 && error != EINVAL) {
    refuse(path_, "syncing its folder", error);
  }
}

bool is_temporary(const fs::path& path) { return path.filename().string().rfind(kPrefix, 0) == 0; }

}  // namespace stagecoach
