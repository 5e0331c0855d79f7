#include "core/base/text_file.h"

#include <fstream>
#include <sstream>

#include "core/base/atomic_file.h"
#include "core/base/memory_limits.h"
#include "core/base/throw_if.h"

namespace stagecoach {

namespace fs = std::filesystem;

std::string read_text(const fs::path& path, const std::string& advice) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  // A FIFO may never have data, and a device may never end.
  throw_if<DataError>(fs::exists(status) && !fs::is_regular_file(status),
                      "{}: expected a regular file, got another kind of file; {}", path.string(), advice);
  std::ifstream file(path, std::ios::binary);
  if (const auto size = fs::file_size(path, error); !error) {
    require_memory_for(path.string(), size);
  }
  std::ostringstream bytes;
  if (file.peek() != std::ifstream::traits_type::eof()) {
    bytes << file.rdbuf();
  }
  // bad() is also true after memory has run out.
  throw_if<DataError>(!file.is_open() || file.bad() || bytes.bad(), "{}: cannot be read; {}", path.string(), advice);
  return bytes.str();
}

void write_text(const fs::path& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace stagecoach
