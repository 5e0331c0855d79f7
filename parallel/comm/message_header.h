#pragma once
/// @file
/// What precedes a tensor that travels between processes.

#include <array>
#include <cstdint>
#include <string>

#include "core/tensor.h"
#include "parallel/comm/link_direction.h"

namespace stagecoach {

struct MessageHeader {
  std::array<char, 32> operation{};  ///< the operation that the message belongs to
  std::int32_t dtype = 0;            ///< dtype, dims and extents describe the operation's tensor
  std::int32_t dims = 0;
  std::array<std::int64_t, Shape::kMaxDims> extents{};
  LinkDirection::Send send = {};  ///< used with a virtual clock

  MessageHeader() = default;
  MessageHeader(const char* operation, const Tensor& about, const LinkDirection::Send& send = {});
  /// Returns text such as "float32[2, 3]".
  std::string type() const;
  bool is_of_same_type(const MessageHeader& other) const {
    return dtype == other.dtype && dims == other.dims && extents == other.extents;
  }
};

}  // namespace stagecoach
