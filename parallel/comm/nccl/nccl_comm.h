#pragma once
/// @file
/// Non-blocking NCCL communicators: a call begins an operation, and the communicator's state tells whether it has ended
/// or failed. While a communicator is busy, no other call may be made on it. Only sources that are built with NCCL
/// include this header.

#include <nccl.h>

#include <atomic>
#include <string>
#include <utility>

#include "parallel/comm/point_to_point_backend.h"

namespace stagecoach {

/// Throws BackendError, naming `call`, if `result` is a failure.
void require_nccl_call(ncclResult_t result, const char* call, ncclComm_t comm);

/// An NCCL communicator. It exists from the call that begins its creation.
class NcclComm {
 public:
  NcclComm() = default;
  /// `call(into, settings)` begins the creation. Until that ends, `parent`, if not null, is busy too.
  template <class Call>
  NcclComm(const char* name, const NcclComm* parent, const Call& call)
      : parent_(parent), slot_(new std::atomic<ncclComm_t>(nullptr)) {
    static_assert(sizeof(*slot_) == sizeof(ncclComm_t), "NCCL writes a plain pointer");
    ncclConfig_t settings = config();
    require_nccl_call(call(reinterpret_cast<ncclComm_t*>(slot_), &settings), name, nullptr);
  }
  ~NcclComm() { abort(); }
  NcclComm(NcclComm&& other) noexcept
      : parent_(other.parent_), slot_(std::exchange(other.slot_, nullptr)), raw_(std::exchange(other.raw_, nullptr)) {}
  NcclComm& operator=(NcclComm&& other) noexcept {
    abort();
    parent_ = other.parent_;
    slot_ = std::exchange(other.slot_, nullptr);
    raw_ = std::exchange(other.raw_, nullptr);
    return *this;
  }

  bool exists() const { return slot_ != nullptr || raw_ != nullptr; }
  /// Throws BackendError if the communicator was closed or aborted.
  ncclComm_t raw() const;
  /// Returns whether the last operation has ended. Throws BackendError if it has failed on this rank or another.
  bool is_ready();
  void abort() noexcept;
  /// Disconnects from the other ranks; waits at most a second for them.
  void close();

 private:
  static ncclConfig_t config();
  bool has_ended() const;

  const NcclComm* parent_ = nullptr;
  std::atomic<ncclComm_t>* slot_ = nullptr;  // during creation
  ncclComm_t raw_ = nullptr;
};

/// Begins to create the communicator of rank `rank` of the `size` ranks that share `id`.
NcclComm init_nccl_comm(const std::string& id, int rank, int size);
/// Calls `poll` repeatedly until `comm` has been created.
void wait_for_comm(NcclComm& comm, const PointToPointBackend::Poll& poll);

}  // namespace stagecoach
