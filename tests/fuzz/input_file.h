#pragma once
/// @file
/// Inputs for readers that take a path: files in memory, rewritten for every input without touching a disk.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "tests/support/files.h"

namespace stagecoach::fuzz {

/// One file without a name, that has a path all the same.
class InputFile {
 public:
  explicit InputFile(const char* name) : descriptor_(::memfd_create(name, MFD_CLOEXEC)) {
    if (descriptor_ < 0) {
      throw std::runtime_error("memfd_create failed");
    }
  }
  ~InputFile() { ::close(descriptor_); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }
  void write(std::string_view bytes) const {
    if (::ftruncate(descriptor_, 0) != 0 ||
        ::pwrite(descriptor_, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
      throw std::runtime_error("an input cannot be written");
    }
  }

 private:
  int descriptor_;
};

inline void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (!file.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush()) {
    throw std::runtime_error("an input cannot be written");
  }
}

/// Of a text that begins with '{': the safetensors file with its first line as header and the rest as data. So
/// mutations of the header reach its reader; they would nearly all be stopped by the header's length. Other texts stay
/// as they are.
inline std::string with_header_length(std::string_view text) {
  if (text.substr(0, 1) != "{") {
    return std::string(text);
  }
  const std::size_t end = std::min(text.find('\n'), text.size());
  std::string file;
  for (unsigned shift = 0; shift < 64; shift += 8) {
    file += static_cast<char>(end >> shift & 0xffU);
  }
  file += text.substr(0, end);
  file += text.substr(std::min(end + 1, text.size()));
  return file;
}

}  // namespace stagecoach::fuzz
