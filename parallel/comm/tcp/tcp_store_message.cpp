#include "parallel/comm/tcp/tcp_store_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "parallel/comm/tcp/tcp_store.h"

namespace stagecoach {
namespace {

/// Removes `size` bytes from the front and returns them.
std::string_view cut(std::string_view& bytes, std::size_t size) {
  const std::string_view front = bytes.substr(0, size);
  bytes.remove_prefix(size);
  return front;
}

}  // namespace

std::optional<TcpStoreGreeting> take_greeting(std::string_view& bytes) {
  TcpStoreHello hello{};
  std::memcpy(&hello, bytes.data(), std::min(bytes.size(), sizeof(hello)));
  if (bytes.size() >= sizeof(hello.magic) && hello.magic != TcpStoreHello::kMagic) {
    throw TcpStoreRefusal("expected the hello of a store's client, got other bytes; use the same version on all ranks");
  }
  if (bytes.size() < sizeof(hello)) {
    return std::nullopt;
  }
  if (hello.token_bytes > TcpStoreHello::kMaxBytes || hello.name_bytes > TcpStoreHello::kMaxBytes) {
    throw TcpStoreRefusal(fmt::format("expected a token and a name of at most {2} bytes each, got {0} and {1}",
                                      hello.token_bytes, hello.name_bytes, TcpStoreHello::kMaxBytes));
  }
  if (bytes.size() < sizeof(hello) + hello.token_bytes + hello.name_bytes) {
    return std::nullopt;
  }
  bytes.remove_prefix(sizeof(hello));
  const std::string_view token = cut(bytes, hello.token_bytes);
  return TcpStoreGreeting{token, cut(bytes, hello.name_bytes)};
}

std::optional<TcpStoreCommand> take_command(std::string_view& bytes) {
  TcpStoreRequest request{};
  if (bytes.size() < sizeof(request)) {
    return std::nullopt;
  }
  std::memcpy(static_cast<void*>(&request), bytes.data(), sizeof(request));
  if (request.magic != TcpStoreRequest::kMagic || request.operation < TcpStoreRequest::kSet ||
      request.operation > TcpStoreRequest::kLeave) {
    throw TcpStoreRefusal("expected a request, got other bytes");
  }
  if (request.key_bytes > TcpStore::kMaxKeyBytes || request.value_bytes > TcpStore::kMaxBytes) {
    throw TcpStoreRefusal(
        fmt::format("expected a value of at most {2} bytes and a key of at most {3} bytes, got {0} and {1}",
                    request.value_bytes, request.key_bytes, TcpStore::kMaxBytes, TcpStore::kMaxKeyBytes));
  }
  if (bytes.size() < sizeof(request) + request.key_bytes + request.value_bytes) {
    return std::nullopt;
  }
  bytes.remove_prefix(sizeof(request));
  const std::string_view key = cut(bytes, request.key_bytes);
  return TcpStoreCommand{request.operation, request.number, key, cut(bytes, request.value_bytes)};
}

}  // namespace stagecoach
