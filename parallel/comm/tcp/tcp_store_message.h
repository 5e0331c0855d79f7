#pragma once
/// @file
/// The messages between a store and its clients. Every message is a header followed by the bytes that it announces. A
/// client sends one hello, receives an answer, and then sends requests. All machines must have the same byte order.

#include <cstdint>
#include <string>

#include "core/base/error.h"

namespace stagecoach {

/// Why a client is refused; the text is also sent to that client.
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
  static constexpr std::uint32_t kMaxBytes = 256;  ///< limit for the token and for the name
};

/// A request, followed by its key and its value. Only get, add and pop are answered.
struct TcpStoreRequest {
  enum Operation : std::int32_t { kSet, kGet, kAdd, kPush, kPop, kPushWhenLost, kLeave };
  Operation operation;
  std::uint32_t key_bytes;
  std::uint32_t value_bytes;
  std::uint32_t magic;
  std::int64_t number;
  static constexpr std::uint32_t kMagic = 0x57a6ec0a;
};

/// An answer to a hello or to a request, followed by the value, or by the reason for a refusal.
struct TcpStoreAnswer {
  enum Outcome : std::uint32_t { kDone, kRefused };
  std::int64_t number;
  Outcome outcome;
  std::uint32_t value_bytes;
};

/// Appends the bytes of one of the headers above.
template <class Head>
void append_head(std::string& bytes, const Head& head) {
  bytes.append(reinterpret_cast<const char*>(&head), sizeof(head));
}

}  // namespace stagecoach
