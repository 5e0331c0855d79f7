#include "core/base/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/file_identity.h"
#include "core/base/parse.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& path, const char* what, int error) {
  throw DataError(fmt::format("cannot write '{}': {}: {}; check the folder, its permissions and the free space",
                              path.string(), what, std::strerror(error)));
}

/// Returns whether `path` has a temporary name; a user's '.stagecoach-notes' does not.
bool is_temporary(const fs::path& path) { return numbers_in(path.filename().string(), ".stagecoach-#-#").has_value(); }

/// Returns a new descriptor of standard output or standard error if that is the file, otherwise -1. It continues after
/// the program's other output, whereas a descriptor opened by name would start at the beginning and overwrite that.
int standard_stream(const struct stat& file) {
  for (const int standard : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat status {};
    if (::fstat(standard, &status) == 0 && identity_of(status) == identity_of(file)) {
      std::fflush(standard == STDOUT_FILENO ? stdout : stderr);  // keeps earlier output first
      return ::fcntl(standard, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    }
  }
  return -1;
}

/// Returns the end of a chain of symbolic links, where there may be no file yet.
fs::path without_links(fs::path path) {
  std::error_code is_no_link;
  for (fs::path link = fs::read_symlink(path, is_no_link); !is_no_link; link = fs::read_symlink(path, is_no_link)) {
    path = path.parent_path() / link;
  }
  return path;
}

/// Returns whether `file` is a regular file named `path`. A link in /proc may lead to a file that no longer has a name.
bool is_regular_file(const fs::path& path, const struct stat& file) {
  struct stat named {};
  return S_ISREG(file.st_mode) && ::lstat(path.c_str(), &named) == 0 && identity_of(named) == identity_of(file);
}

/// Opens the existing file, to be written to directly.
int open_in_place(const fs::path& path, mode_t mode) {
  const bool is_writable = S_ISFIFO(mode) || S_ISCHR(mode) || S_ISREG(mode);
  if (!is_writable) {
    const char* kind = S_ISDIR(mode) ? "folder" : S_ISSOCK(mode) ? "socket" : "block device";
    throw DataError(
        fmt::format("cannot write '{}': expected a file, got a {}; choose another name", path.string(), kind));
  }
  // Without O_NONBLOCK a FIFO would wait here for its reader.
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_TRUNC | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (descriptor < 0 && errno == ENXIO && S_ISFIFO(mode)) {
    throw DataError(
        fmt::format("cannot write '{}': no process is reading this FIFO; start its reader first", path.string()));
  }
  if (descriptor < 0) {
    refuse(path, "opening", errno);
  }
  ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) & ~O_NONBLOCK);  // waits for a slow reader
  return descriptor;
}

/// Writes like ::write, but a closed reader causes the error EPIPE, not a signal that kills the program.
ssize_t write_without_signal(int descriptor, const void* data, std::size_t bytes) {
  sigset_t pipe_signal;
  sigset_t blocked_before;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe_signal, &blocked_before);
  const ssize_t written = ::write(descriptor, data, bytes);
  const int error = errno;
  if (written < 0 && error == EPIPE) {
    sigset_t pending;
    int consumed = 0;
    if (::sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1) {  // not if it is ignored
      ::sigwait(&pipe_signal, &consumed);
    }
  }
  ::pthread_sigmask(SIG_SETMASK, &blocked_before, nullptr);
  errno = error;
  return written;
}

}  // namespace

AtomicFile::AtomicFile(const fs::path& path) : path_(path) {
  struct stat status {};
  const bool is_there = ::stat(path.c_str(), &status) == 0;
  if (!is_there && errno != ENOENT) {
    refuse(path, "checking the existing file", errno);
  }
  target_ = without_links(path);
  if (is_there) {
    descriptor_ = standard_stream(status);
    if (descriptor_ < 0 && !is_regular_file(target_, status)) {
      descriptor_ = open_in_place(path, status.st_mode);
    }
  }
  if (descriptor_ < 0) {
    open_temporary();
  }
}

void AtomicFile::open_temporary() {
  static std::atomic<unsigned> counter = 0;
  do {
    // Short, so that it is valid wherever the file's own name is; unique even if an earlier process was killed.
    temporary_ = folder() / fmt::format(".stagecoach-{}-{}", ::getpid(), counter++);
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (descriptor_ < 0 && (errno == EEXIST || errno == EINTR));
  if (descriptor_ < 0) {
    refuse(path_, "creating a temporary file in the same folder", errno);
  }
  ::flock(descriptor_, LOCK_EX | LOCK_NB);  // tells remove_abandoned_files that the writer is running
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
    const ssize_t written = write_without_signal(descriptor_, next, bytes);
    if (written < 0 && errno != EINTR) {
      refuse(path_, "writing", errno);
    }
    next += written < 0 ? 0 : written;
    bytes -= written < 0 ? 0 : static_cast<std::size_t>(written);
  }
}

void AtomicFile::commit() {
  if (!temporary_.empty() && ::fsync(descriptor_) != 0) {
    refuse(path_, "syncing", errno);
  }
  if (::close(std::exchange(descriptor_, -1)) != 0) {
    refuse(path_, "closing", errno);
  }
  if (temporary_.empty()) {
    return;
  }
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) {
    refuse(path_, "renaming", errno);
  }
  temporary_.clear();
  sync_folder();
}

fs::path AtomicFile::folder() const { return target_.has_parent_path() ? target_.parent_path() : fs::path("."); }

/// Makes the new name survive a power failure. File systems that cannot sync a folder return EINVAL.
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

void remove_abandoned_files(const fs::path& folder) try {
  std::vector<fs::path> temporary;
  std::copy_if(fs::directory_iterator(folder), {}, std::back_inserter(temporary), [](const fs::directory_entry& entry) {
    return is_temporary(entry.path()) && entry.symlink_status().type() == fs::file_type::regular;
  });
  for (const fs::path& file : temporary) {
    const int descriptor = ::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    const bool is_being_written =
        descriptor >= 0 && ::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!is_being_written) {
      ::unlink(file.c_str());  // a file that cannot be removed does no harm
    }
    if (descriptor >= 0) {
      ::close(descriptor);
    }
  }
} catch (const fs::filesystem_error& error) {
  throw DataError(
      fmt::format("cannot search folder '{}' for temporary files left by killed programs: {}; check its permissions",
                  folder.string(), error.code().message()));
}

}  // namespace stagecoach
