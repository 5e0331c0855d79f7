#pragma once
/// @file
/// Communicators of NCCL, all of its kind that does not block: a call begins something, and asking for the
/// communicator's state tells whether it has ended or failed. While one is busy no other call may be made on it. Only
/// sources that are built with NCCL include this.

#include <nccl.h>

#include <atomic>
#include <string>
#include <utility>

#include "parallel/comm/point_to_point_backend.h"

namespace stagecoach {

/// Throws BackendError, which names `call`, when `result` is a failure.
void require_nccl_call(ncclResult_t result, const char* call, ncclComm_t comm);

/// A communicator of NCCL, from the call that begins to make it.
class NcclComm {
 public:
  NcclComm() = default;
  /// `call(into, settings)` begins to make it. While it is being made `parent` is busy too, if there is one.
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
  /// Throws BackendError when it was ended.
  ncclComm_t raw() const;
  /// Whether what was begun has ended. Throws BackendError when it has failed, on this rank or another.
  bool is_ready();
  void abort() noexcept;
  /// Disconnects from the other ranks; waits a second for them at most.
  void close();

 private:
  static ncclConfig_t config();
  bool has_ended() const;

  const NcclComm* parent_ = nullptr;
  std::atomic<ncclComm_t>* slot_ = nullptr;  // while it is being made
  ncclComm_t raw_ = nullptr;
};

/// Begins to make that of rank `rank` of the `size` which know each other by `id`.
NcclComm init_nccl_comm(const std::string& id, int rank, int size);
/// Calls `poll` again and again until it is made.
void wait_for_comm(NcclComm& comm, const PointToPointBackend::Poll& poll);

}  // namespace stagecoach
