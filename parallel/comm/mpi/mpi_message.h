#pragma once
/// @file
/// A tensor as MPI messages. The first message begins with a header that describes the tensor, and contains all of a
/// short tensor. What does not fit follows in a separate message, without a copy. Only sources that are built with MPI
/// include this header.

#include <mpi.h>

#include <array>
#include <vector>

#include "core/tensor.h"
#include "parallel/comm/message_header.h"
#include "parallel/comm/mpi/mpi_world.h"

namespace stagecoach {

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
  void start(const MpiAddress& to, const MessageHeader& header, const Tensor& tensor, MpiSend send_rest,
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
  MessageHeader header() const;
  /// Completes the tensor and returns it. All requests must be done.
  Tensor end();

 private:
  std::array<std::byte, kFirstMessage> first_;
  Tensor tensor_;
};

}  // namespace stagecoach
