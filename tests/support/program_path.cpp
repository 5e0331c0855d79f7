#include "tests/support/program_path.h"

#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif

#include <array>
#include <cstdint>
#include <filesystem>

namespace stagecoach::test {
namespace {

std::filesystem::path own_path() {
#ifdef __APPLE__
  std::array<char, 4096> path{};
  auto size = static_cast<std::uint32_t>(path.size());
  ::_NSGetExecutablePath(path.data(), &size);
  return path.data();
#else
  return std::filesystem::read_symlink("/proc/self/exe");
#endif
}

}  // namespace

std::string program_path(const std::string& name) { return (own_path().parent_path() / name).string(); }

}  // namespace stagecoach::test
