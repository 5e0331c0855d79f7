#include "parallel/launch/run_token.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "core/base/throw_if.h"
#include "parallel/comm/tcp/admission.h"

namespace stagecoach {
namespace {

constexpr std::size_t kMinBytes = 16;
constexpr const char* kTokenAdvice = "set the same STAGECOACH_TOKEN for all ranks, such as $(openssl rand -hex 16)";

std::string checked(std::string token, const std::string& source) {
  throw_if<UsageError>(token.size() < kMinBytes || token.size() > TcpHello::kMaxToken,
                       "{}: expected a secret of {} to {} bytes, got {}; {}", source, kMinBytes, TcpHello::kMaxToken,
                       token.size(), kTokenAdvice);
  return token;
}

[[noreturn]] void fail_with(const char* what, const std::string& path, int error) {
  throw UsageError(
      fmt::format("{}: this user's token cannot be {}: {}; {}", path, what, std::strerror(error), kTokenAdvice));
}

/// Writes a new token to a file that only this user can read. Returns 0 or the error number.
int write_new(std::string& path) {
  const std::string token = random_token();
  const int descriptor = ::mkstemp(path.data());
  if (descriptor < 0) {
    return errno;
  }
  const bool is_written = ::write(descriptor, token.data(), token.size()) == static_cast<ssize_t>(token.size());
  const int error = is_written ? 0 : errno;
  ::close(descriptor);
  return error;
}

/// Creates the file atomically, with its full contents. If several processes create it at once, the contents of the
/// first are kept.
void make_file(const std::string& path) {
  std::string draft = path + ".XXXXXX";
  int error = write_new(draft);
  if (error == 0 && ::link(draft.c_str(), path.c_str()) != 0 && errno != EEXIST) {
    error = errno;
  }
  ::unlink(draft.c_str());
  if (error != 0) {
    fail_with("written", path, error);
  }
}

std::string read_file(const std::string& path) {
  struct stat state {};
  if (::stat(path.c_str(), &state) != 0) {
    fail_with("read", path, errno);
  }
  // Reading a FIFO would block.
  throw_if<UsageError>(!S_ISREG(state.st_mode),
                       "{}: expected a regular file with a secret, got another kind of file; {}", path, kTokenAdvice);
  throw_if<UsageError>((state.st_mode & (S_IRWXG | S_IRWXO)) != 0,
                       "{}: expected a file that only you can read (mode 600), got mode {:o}; remove the file, and the "
                       "next run creates a new one",
                       path, state.st_mode & 0777U);
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    fail_with("read", path, errno);
  }
  std::string token(TcpHello::kMaxToken + 1, '\0');
  file.read(token.data(), static_cast<std::streamsize>(token.size()));
  token.resize(static_cast<std::size_t>(file.gcount()));
  return token;
}

}  // namespace

std::string run_token(Environment get) {
  if (const char* token = get("STAGECOACH_TOKEN"); token != nullptr) {
    return checked(token, "STAGECOACH_TOKEN");
  }
  const char* home = get("HOME");
  throw_if<UsageError>(home == nullptr || *home == '\0', "neither STAGECOACH_TOKEN nor HOME is set; {}", kTokenAdvice);
  const std::string path = fmt::format("{}/.stagecoach_token", home);
  if (::access(path.c_str(), F_OK) != 0) {
    make_file(path);
  }
  return checked(read_file(path), path);
}

std::string random_token() {
  std::array<unsigned char, 16> bytes{};
  STAGECOACH_CHECK(::getentropy(bytes.data(), bytes.size()) == 0, "cannot get random bytes for a token: {}",
                   std::strerror(errno));
  std::string digits;
  for (const unsigned char byte : bytes) {
    digits += fmt::format("{:02x}", byte);
  }
  return digits;
}

}  // namespace stagecoach
