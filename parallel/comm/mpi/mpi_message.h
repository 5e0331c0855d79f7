#pragma once
/// @file
/// A tensor as MPI messages. The first message begins with a header that describes the tensor, and contains all of a
/// short tensor. What does not fit follows in a separate message, without a copy. Only sources that are built with MPI
/// include this header.

#include <mpi.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "parallel/comm/link_direction.h"
#include "parallel/comm/mpi/mpi_world.h"

namespace stagecoach {

struct MpiHeader {
  std::array<char, 32> operation{};  ///< the operation that the message belongs to
  std::int32_t dtype = 0;            ///< dtype, dims and extents describe the operation's tensor
  std::int32_t dims = 0;
  std::array<std::int64_t, Shape::kMaxDims> extents{};
  LinkDirection::Send send = {};  ///< used with a virtual clock

  MpiHeader() = default;
  MpiHeader(const char* operation, const Tensor& about, const LinkDirection::Send& send = {});
  /// Returns text such as "float32[2, 3]".
  std::string type() const;
  bool is_of_same_type(const MpiHeader& other) const {
    return dtype == other.dtype && dims == other.dims && extents == other.extents;
  }
};

/// The destination or source of a message.
struct MpiAddress {
  MPI_Comm comm;
  int rank;
  int tag;
};

using MpiRequests = std::vector<MPI_Request>;
/// Size of the first message in bytes: MPI libraries send messages this short eagerly on any link.
inline constexpr std::size_t kFirstMessage = 4000;

/// MPI_Isend, or MPI_Issend, which completes only when the receiver has begun to receive.
using MpiSend = decltype(&MPI_Isend);

/// An outgoing message. It must not be moved or destroyed until its requests are done.
class MpiOutgoing {
 public:
  /// Starts to send `tensor`, what the first message does not contain by `send_rest`, and adds the requests to wait for
  /// to `requests`. Errors begin with the text that `context` returns.
  void start(const MpiAddress& to, const MpiHeader& header, const Tensor& tensor, MpiSend send_rest,
             MpiRequests& requests, const ErrorContext& context);
  /// Releases the tensor after it has been sent.
  void end() { tensor_ = {}; }

 private:
  std::array<std::byte, kFirstMessage> first_;
  Tensor tensor_;
};

/// An incoming message. It must not be moved or destroyed until its requests are done.
class MpiIncoming {
 public:
  /// Starts to receive into `tensor`; the first of the requests is the one for the header.
  void start(const MpiAddress& from, const Tensor& tensor, MpiRequests& requests, const ErrorContext& context);
  /// Returns the header that arrived. The first request must be done.
  MpiHeader header() const;
  /// Completes the tensor and returns it. All requests must be done.
  Tensor end();

 private:
  std::array<std::byte, kFirstMessage> first_;
  Tensor tensor_;
};

}  // namespace stagecoach
