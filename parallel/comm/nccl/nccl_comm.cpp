#include "parallel/comm/nccl/nccl_comm.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "core/base/throw_if.h"

namespace stagecoach {
namespace {

constexpr std::chrono::seconds kNcclFarewell(1);
constexpr std::chrono::microseconds kBackOff(100);

}  // namespace

void require_nccl_call(ncclResult_t result, const char* call, ncclComm_t comm) {
  if (result != ncclSuccess && result != ncclInProgress) {
    throw BackendError(fmt::format("NCCL: {}: {} ({})", call, ncclGetErrorString(result), ncclGetLastError(comm)));
  }
}

ncclConfig_t NcclComm::config() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

ncclComm_t NcclComm::raw() const {
  throw_if<BackendError>(raw_ == nullptr, "NCCL: the communicator has already been destroyed");
  return raw_;
}

bool NcclComm::has_ended() const {
  ncclResult_t state = ncclSuccess;
  require_nccl_call(ncclCommGetAsyncError(raw(), &state), "ncclCommGetAsyncError", raw_);
  require_nccl_call(state, "a pending call", raw_);
  return state == ncclSuccess;
}

bool NcclComm::is_ready() {
  if (slot_ != nullptr) {
    if (parent_ != nullptr && !parent_->has_ended()) {
      return false;
    }
    raw_ = slot_->load();
    if (raw_ == nullptr || !has_ended()) {
      return false;
    }
    delete std::exchange(slot_, nullptr);
  }
  return has_ended();
}

void NcclComm::abort() noexcept {
  if (slot_ != nullptr) {
    raw_ = slot_->load();
    slot_ = nullptr;  // leaked, because NCCL may still write there
  }
  if (raw_ != nullptr) {
    static_cast<void>(ncclCommAbort(std::exchange(raw_, nullptr)));
  }
}

void NcclComm::close() {
  require_nccl_call(ncclCommFinalize(raw()), "ncclCommFinalize", raw_);
  for (const auto end = std::chrono::steady_clock::now() + kNcclFarewell; !is_ready();) {
    if (std::chrono::steady_clock::now() > end) {
      return abort();
    }
    std::this_thread::sleep_for(kBackOff);
  }
  static_cast<void>(ncclCommDestroy(std::exchange(raw_, nullptr)));
}

NcclComm init_nccl_comm(const std::string& id, int rank, int size) {
  STAGECOACH_CHECK(id.size() == sizeof(ncclUniqueId), "NCCL: expected a unique id of {} bytes, got {}",
                   sizeof(ncclUniqueId), id.size());
  ncclUniqueId unique;
  std::memcpy(&unique, id.data(), sizeof(unique));
  return {"ncclCommInitRankConfig", nullptr, [&](ncclComm_t* into, ncclConfig_t* settings) {
            return ncclCommInitRankConfig(into, size, unique, rank, settings);
          }};
}

void wait_for_comm(NcclComm& comm, const PointToPointBackend::Poll& poll) {
  while (!comm.is_ready()) {
    poll();
  }
}

}  // namespace stagecoach
