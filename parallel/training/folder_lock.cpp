#include "parallel/training/folder_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/base/file_identity.h"
#include "core/base/throw_if.h"

namespace stagecoach {

namespace fs = std::filesystem;

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);  // this releases the lock
  }
}

void FolderLock::take(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  throw_if<DataError>(descriptor < 0, "`out` {}: the folder cannot be opened: {}; check its permissions",
                      folder.string(), std::strerror(errno));
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(descriptor);
    throw UsageError(fmt::format("`out` {}: another run is writing there; wait for it to end, or choose another folder",
                                 folder.string()));
  }
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
  descriptor_ = descriptor;
}

bool FolderLock::holds(const fs::path& folder) const {
  const auto locked = identity_of(descriptor_);
  return locked && locked == identity_of(folder);
}

}  // namespace stagecoach
