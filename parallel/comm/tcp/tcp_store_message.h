#pragma once
/// @file
/// What a store and its clients send each other. Every message is a head and the bytes that it announces. A client says
/// hello once, is answered, and then sends requests. All machines must have one byte order.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/error.h"

namespace stagecoach {

/// Why a client is sent away; the text is for that client too.
class TcpStoreRefusal : public Error {
 public:
  using Error::Error;
};

/// The first thing that a client sends, followed by the token and the client's name.
struct TcpStoreHello {
  std::uint32_t magic;
  std::uint32_t token_bytes;
  std::uint32_t name_bytes;
  static constexpr std::uint32_t kMagic = 0x57a6ec0b;
  static constexpr std::uint32_t kMaxBytes = 256;  ///< of the token, and of the name
};

/// A request, followed by its key and its value. get, add and pop are answered, the others are not.
struct TcpStoreRequest {
  enum Operation : std::int32_t { kSet, kGet, kAdd, kPush, kPop, kPushWhenLost, kLeave };
  Operation operation;
  std::uint32_t key_bytes;
  std::uint32_t value_bytes;
  std::uint32_t magic;
  std::int64_t number;
  static constexpr std::uint32_t kMagic = 0x57a6ec0a;
};

/// An answer to a hello or to a request, followed by the value: the reason, when it is refused.
struct TcpStoreAnswer {
  enum Outcome : std::uint32_t { kDone, kRefused };
  std::int64_t number;
  Outcome outcome;
  std::uint32_t value_bytes;
};

/// Appends the bytes of one of the heads above.
template <class Head>
void append_head(std::string& bytes, const Head& head) {
  bytes.append(reinterpret_cast<const char*>(&head), sizeof(head));
}

/// What came with a head. The texts are parts of the bytes that it was read from.
struct TcpStoreGreeting {
  std::string_view token;
  std::string_view name;
};
struct TcpStoreCommand {
  TcpStoreRequest::Operation operation;
  std::int64_t number;
  std::string_view key;
  std::string_view value;
};

// Both take a whole message from the front of `bytes`, or nothing while it is not whole. They throw TcpStoreRefusal for
// what cannot become one.
std::optional<TcpStoreGreeting> take_greeting(std::string_view& bytes);
std::optional<TcpStoreCommand> take_command(std::string_view& bytes);

}  // namespace stagecoach
