#pragma once
/// @file
/// A tensor as messages of MPI. The first begins with a header, which says what comes, and holds a short tensor whole;
/// what does not fit follows in a message of its own, which is not copied. Only sources that are built with MPI include
/// this.

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
  std::array<char, 32> operation{};  ///< that this belongs to
  std::int32_t dtype = 0;            ///< with dims and extents: of the tensor that the operation is about
  std::int32_t dims = 0;
  std::array<std::int64_t, Shape::kMaxDims> extents{};
  LinkDirection::Send send = {};  ///< by a virtual clock

  MpiHeader() = default;
  MpiHeader(const char* operation, const Tensor& about, const LinkDirection::Send& send = {});
  /// "float32[2, 3]"
  std::string type() const;
  bool is_of_same_type(const MpiHeader& other) const {
    return dtype == other.dtype && dims == other.dims && extents == other.extents;
  }
};

/// Where a message goes to or comes from.
struct MpiAddress {
  MPI_Comm comm;
  int rank;
  int tag;
};

using MpiRequests = std::vector<MPI_Request>;
/// Bytes of the first message: what MPIs hand over at once, whatever the link.
inline constexpr std::size_t kFirstMessage = 4000;

/// One on its way out. It must stay where it is until its requests are done.
class MpiOutgoing {
 public:
  /// Starts to send `tensor`, and adds to `requests` what is to be waited for. Errors begin with what `doing` returns.
  void start(const MpiAddress& to, const MpiHeader& header, const Tensor& tensor, MpiRequests& requests,
             const MpiWorld::ErrorContext& doing);
  /// It is sent: the tensor is needed no longer.
  void end() { tensor_ = {}; }

 private:
  std::array<std::byte, kFirstMessage> first_;
  Tensor tensor_;
};

/// One that is expected. It must stay where it is until its requests are done.
class MpiIncoming {
 public:
  /// Starts to receive into `tensor`; the first of the requests is that for the header.
  void start(const MpiAddress& from, const Tensor& tensor, MpiRequests& requests, const MpiWorld::ErrorContext& doing);
  /// What came, when the first request is done.
  MpiHeader header() const;
  /// It is all there: completes the tensor, and returns it.
  Tensor end();

 private:
  std::array<std::byte, kFirstMessage> first_;
  Tensor tensor_;
};

}  // namespace stagecoach
