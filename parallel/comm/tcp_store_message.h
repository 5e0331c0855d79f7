#pragma once
/// @file
/// What a store and its clients send each other. Every message is a head and the bytes that it announces.

#include <cstdint>

namespace stagecoach {

/// A request, followed by its key and its value. get, add and pop are answered, the others are not.
struct TcpStoreRequest {
  enum Operation : std::int32_t { kSet, kGet, kAdd, kPush, kPop, kPushWhenLost, kLeave };
  Operation operation;
  std::uint32_t key_bytes;
  std::uint32_t value_bytes;
  std::uint32_t magic;  ///< kMagic: others that find the port are sent away
  std::int64_t number;
  static constexpr std::uint32_t kMagic = 0x57a6ec0a;
};

/// An answer, followed by the value.
struct TcpStoreAnswer {
  std::int64_t number;
  std::uint64_t value_bytes;
};

}  // namespace stagecoach
