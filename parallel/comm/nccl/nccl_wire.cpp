// All communicators of NCCL here are of its kind that does not block: a call begins something, and asking for the
// communicator's state tells whether it has ended or failed. While one is busy no other call may be made on it.

#include "parallel/comm/nccl/nccl_wire.h"

#include <cuda_runtime.h>
#include <fmt/format.h>
#include <nccl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>

#include "core/cuda/handles.h"
#include "core/cuda/queues.h"

namespace stagecoach {
namespace {

constexpr std::chrono::seconds kFarewell(1);
constexpr std::chrono::microseconds kRest(100);

void require(ncclResult_t result, const char* call, ncclComm_t comm) {
  if (result != ncclSuccess && result != ncclInProgress) {
    throw WireError(fmt::format("NCCL: {}: {} ({})", call, ncclGetErrorString(result), ncclGetLastError(comm)));
  }
}

ncclConfig_t config() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

/// Owns a communicator of NCCL.
class NcclComm {
 public:
  explicit NcclComm(ncclComm_t raw) : raw_(raw) {}
  ~NcclComm() { abort(); }
  NcclComm(NcclComm&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  NcclComm& operator=(NcclComm&&) = delete;

  ncclComm_t raw() const {
    if (raw_ == nullptr) {
      throw WireError("NCCL: the communicator was ended before");
    }
    return raw_;
  }
  /// Whether what was begun has ended. Throws WireError when it has failed, on this rank or another.
  bool is_ready() const {
    ncclResult_t state = ncclSuccess;
    require(ncclCommGetAsyncError(raw(), &state), "ncclCommGetAsyncError", raw_);
    require(state, "a call that was under way", raw_);
    return state == ncclSuccess;
  }
  void abort() noexcept {
    if (raw_ != nullptr) {
      static_cast<void>(ncclCommAbort(std::exchange(raw_, nullptr)));
    }
  }
  void close() {
    require(ncclCommFinalize(raw()), "ncclCommFinalize", raw_);
    for (const auto end = std::chrono::steady_clock::now() + kFarewell; !is_ready();) {
      if (std::chrono::steady_clock::now() > end) {
        return abort();
      }
      std::this_thread::sleep_for(kRest);
    }
    static_cast<void>(ncclCommDestroy(std::exchange(raw_, nullptr)));
  }

 private:
  ncclComm_t raw_;
};

/// Begins to make a communicator with `call`, and waits for it and for `parent`, which is busy meanwhile.
template <class Call>
NcclComm make_comm(const char* name, const NcclComm* parent, const Wire::Look& look, const Call& call) {
  // NCCL may write there later than this rank gives up, so then the memory is left to it.
  auto* slot = new std::atomic<ncclComm_t>(nullptr);
  static_assert(sizeof(*slot) == sizeof(ncclComm_t), "NCCL writes a plain pointer");
  ncclConfig_t settings = config();
  require(call(reinterpret_cast<ncclComm_t*>(slot), &settings), name, nullptr);
  while ((parent != nullptr && !parent->is_ready()) || slot->load() == nullptr) {
    look();
  }
  NcclComm comm(slot->load());
  while (!comm.is_ready()) {
    look();
  }
  delete slot;
  return comm;
}

NcclComm split_comm(const NcclComm& parent, int colour, int key, const Wire::Look& look) {
  return make_comm("ncclCommSplit", &parent, look, [&](ncclComm_t* into, ncclConfig_t* settings) {
    return ncclCommSplit(parent.raw(), colour, key, into, settings);
  });
}

/// A communicator and the stream on which its transfers run, beside the device's other work.
class NcclLane {
 public:
  NcclLane(Device device, NcclComm comm) : device_(device), comm_(std::move(comm)) {
    cuda::select(device_);
    stream_ = cuda::make_stream();
  }

  NcclComm& comm() { return comm_; }
  std::shared_ptr<Wire::Transfer> start(std::vector<Wire::Move> moves) {
    last_ = std::make_shared<Transfer>(*this, std::move(moves));
    queue_.push_back(last_);
    advance();
    return last_;
  }
  bool is_idle() const { return last_ == nullptr || last_->is_done(); }

 private:
  class Transfer final : public Wire::Transfer {
   public:
    Transfer(NcclLane& lane, std::vector<Wire::Move> moves) : lane_(lane), moves_(std::move(moves)) {
      const cudaStream_t compute = cuda::compute_stream(lane_.device_);
      ready_ = cuda::make_event(false);
      STAGECOACH_CUDA(cudaEventRecord(ready_.get(), compute));
    }
    bool is_done() override;
    /// Gives it to NCCL.
    void launch();
    /// NCCL has given it to the stream.
    void mark() {
      done_ = cuda::make_event(false);
      STAGECOACH_CUDA(cudaEventRecord(done_.get(), lane_.stream_.get()));
      state_ = State::running;
    }
    bool is_waiting() const { return state_ == State::waiting; }

   private:
    enum class State { waiting, launching, running, done };
    NcclLane& lane_;
    std::vector<Wire::Move> moves_;
    cuda::EventHandle ready_;
    cuda::EventHandle done_;
    State state_ = State::waiting;
  };

  /// Gives to NCCL what waits, as far as NCCL is not busy: the first transfer between two ranks connects them, which
  /// lasts until both have begun.
  void advance() {
    cuda::select(device_);
    while (!queue_.empty()) {
      if (queue_.front()->is_waiting()) {
        queue_.front()->launch();
      }
      if (!comm_.is_ready()) {
        return;
      }
      queue_.front()->mark();
      queue_.pop_front();
    }
  }

  Device device_;
  NcclComm comm_;
  cuda::StreamHandle stream_;
  std::deque<std::shared_ptr<Transfer>> queue_;  // what the stream does not have yet
  std::shared_ptr<Transfer> last_;
};

void NcclLane::Transfer::launch() {
  const ncclComm_t comm = lane_.comm_.raw();
  const cudaStream_t stream = lane_.stream_.get();
  STAGECOACH_CUDA(cudaStreamWaitEvent(stream, ready_.get(), 0));
  ncclResult_t failed = ncclSuccess;
  const auto note = [&](ncclResult_t result) {
    failed = failed == ncclSuccess && result != ncclInProgress ? result : failed;
  };
  note(ncclGroupStart());
  for (const Wire::Move& move : moves_) {
    Tensor tensor = move.tensor;
    note(move.way == Wire::Move::Way::out
             ? ncclSend(tensor.raw_data(), tensor.bytes(), ncclUint8, move.peer, comm, stream)
             : ncclRecv(tensor.raw_mutable_data(), tensor.bytes(), ncclUint8, move.peer, comm, stream));
  }
  note(ncclGroupEnd());  // also after an error: groups are counted
  require(failed, "ncclSend and ncclRecv", comm);
  state_ = State::launching;
}

bool NcclLane::Transfer::is_done() {
  lane_.advance();
  if (state_ == State::running) {
    const cudaError_t state = cudaEventQuery(done_.get());
    if (state == cudaSuccess) {
      state_ = State::done;
      moves_.clear();
    } else if (state == cudaErrorNotReady) {
      static_cast<void>(cudaGetLastError());      // the next launch would take it for its own error
      static_cast<void>(lane_.comm_.is_ready());  // throws when another rank is lost
    } else {
      throw WireError(fmt::format("the GPU fails: {} ({})", cudaGetErrorString(state), cudaGetErrorName(state)));
    }
  }
  return state_ == State::done;
}

class NcclWire final : public Wire {
 public:
  NcclWire(Device device, NcclComm up, NcclComm down)
      : device_(device), up_(device, std::move(up)), down_(device, std::move(down)) {}

  std::shared_ptr<Transfer> start(Lane lane, std::vector<Move> moves) override {
    return (lane == Lane::up ? up_ : down_).start(std::move(moves));
  }

  std::unique_ptr<Wire> split(int colour, int key, const Look& look) override {
    cuda::select(device_);
    while (!up_.is_idle() || !down_.is_idle()) {
      look();
    }
    NcclComm up = split_comm(up_.comm(), colour, key, look);
    NcclComm down = split_comm(down_.comm(), colour, key, look);
    return std::make_unique<NcclWire>(device_, std::move(up), std::move(down));
  }

  void abort() noexcept override {
    up_.comm().abort();
    down_.comm().abort();
  }

  void close() noexcept override {
    try {
      cuda::select(device_);
      up_.comm().close();
      down_.comm().close();
    } catch (const Error&) {
      abort();
    }
  }

 private:
  Device device_;
  NcclLane up_;
  NcclLane down_;
};

}  // namespace

std::string new_nccl_id() {
  ncclUniqueId id;
  require(ncclGetUniqueId(&id), "ncclGetUniqueId", nullptr);
  return {id.internal, sizeof(id.internal)};
}

std::unique_ptr<Wire> make_nccl_wire(Device device, const std::string& id, int rank, int size, const Wire::Look& look) {
  STAGECOACH_CHECK(id.size() == sizeof(ncclUniqueId), "an id of NCCL with {} bytes", id.size());
  cuda::select(device);
  ncclUniqueId unique;
  std::memcpy(&unique, id.data(), sizeof(unique));
  NcclComm up = make_comm("ncclCommInitRankConfig", nullptr, look, [&](ncclComm_t* into, ncclConfig_t* settings) {
    return ncclCommInitRankConfig(into, size, unique, rank, settings);
  });
  NcclComm down = split_comm(up, 0, rank, look);
  return std::make_unique<NcclWire>(device, std::move(up), std::move(down));
}

std::string gpu_name(Device device) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  std::array<char, 32> bus{};
  STAGECOACH_CUDA(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device.index));
  return fmt::format("{} {}", host.data(), bus.data());
}

}  // namespace stagecoach
