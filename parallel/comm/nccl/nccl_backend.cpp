#include "parallel/comm/nccl/nccl_backend.h"

#include <cuda_runtime.h>
#include <fmt/format.h>
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "core/base/throw_if.h"
#include "core/cuda/handles.h"
#include "core/cuda/queues.h"
#include "parallel/comm/nccl/nccl_comm.h"

namespace stagecoach {
namespace {

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return ncclFloat32;
    case DType::float64:
      return ncclFloat64;
    case DType::float16:
      return ncclFloat16;
    case DType::int32:
      return ncclInt32;
    case DType::uint8:
      return ncclUint8;
  }
  fail("nccl: unknown dtype");
}

/// A communicator and the stream on which its transfers run, concurrently with the device's other work.
class NcclChannel {
 public:
  /// Submits one transfer to NCCL.
  using Calls = std::function<ncclResult_t(ncclComm_t, cudaStream_t)>;
  /// Returns the communicator once it can be created; until then, one whose exists() is false.
  using Connect = std::function<NcclComm()>;

  NcclChannel(Device device, NcclComm comm) : device_(device), comm_(std::move(comm)) {
    cuda::select(device_);
    stream_ = cuda::make_stream();
  }
  NcclChannel(Device device, Connect connect) : NcclChannel(device, NcclComm()) { connect_ = std::move(connect); }

  NcclComm& comm() { return comm_; }
  std::shared_ptr<PointToPointBackend::Transfer> start(Calls calls, std::vector<Tensor> tensors) {
    last_ = std::make_shared<Transfer>(*this, std::move(calls), std::move(tensors));
    queue_.push_back(last_);
    advance();
    return last_;
  }
  bool is_idle() const { return last_ == nullptr || last_->is_done(); }

  /// Submits waiting transfers to NCCL while NCCL is not busy: connecting two ranks takes until both have begun.
  void advance() {
    throw_if<BackendError>(has_ended_, "NCCL: the communicator has already been destroyed");
    cuda::select(device_);
    if (!comm_.exists() && !queue_.empty()) {
      comm_ = connect_();
    }
    while (comm_.exists() && !queue_.empty() && comm_.is_ready()) {
      if (queue_.front()->is_waiting()) {
        queue_.front()->launch();
      } else {
        queue_.front()->mark();
        queue_.pop_front();
      }
    }
  }
  void abort() noexcept {
    has_ended_ = true;
    comm_.abort();
  }

 private:
  class Transfer final : public PointToPointBackend::Transfer {
   public:
    Transfer(NcclChannel& channel, Calls calls, std::vector<Tensor> tensors)
        : channel_(channel), calls_(std::move(calls)), tensors_(std::move(tensors)) {
      ready_ = cuda::make_event();
      STAGECOACH_CUDA(cudaEventRecord(ready_.get(), cuda::compute_stream(channel_.device_)));
    }
    bool is_done() override;
    /// Submits the transfer to NCCL.
    void launch() {
      const cudaStream_t stream = channel_.stream_.get();
      STAGECOACH_CUDA(cudaStreamWaitEvent(stream, ready_.get(), 0));
      const ncclComm_t comm = channel_.comm_.raw();
      require_nccl_call(calls_(comm, stream), "a transfer", comm);
      state_ = State::launching;
    }
    /// Records that NCCL has enqueued the transfer on the stream.
    void mark() {
      done_ = cuda::make_event();
      STAGECOACH_CUDA(cudaEventRecord(done_.get(), channel_.stream_.get()));
      state_ = State::running;
    }
    bool is_waiting() const { return state_ == State::waiting; }

   private:
    enum class State { waiting, launching, running, done };
    NcclChannel& channel_;
    Calls calls_;
    std::vector<Tensor> tensors_;  // in use until the transfer is done
    cuda::EventHandle ready_;
    cuda::EventHandle done_;
    State state_ = State::waiting;
  };

  Device device_;
  NcclComm comm_;
  Connect connect_;
  cuda::StreamHandle stream_;
  bool has_ended_ = false;
  std::deque<std::shared_ptr<Transfer>> queue_;  // transfers not yet on the stream
  std::shared_ptr<Transfer> last_;
};

bool NcclChannel::Transfer::is_done() {
  channel_.advance();
  if (state_ == State::running) {
    const cudaError_t state = cudaEventQuery(done_.get());
    if (state == cudaSuccess) {
      state_ = State::done;
      tensors_.clear();
    } else if (state == cudaErrorNotReady) {
      static_cast<void>(cudaGetLastError());         // otherwise the next launch would report it as its own error
      static_cast<void>(channel_.comm_.is_ready());  // throws if another rank is lost
    } else {
      throw BackendError(fmt::format("the GPU reports: {} ({})", cudaGetErrorString(state), cudaGetErrorName(state)));
    }
  }
  return state_ == State::done;
}

class NcclBackend final : public PointToPointBackend {
 public:
  NcclBackend(Device device, NcclComm comm) : device_(device), all_(device, std::move(comm)) {}

  void introduce_by(Introductions introductions) override { introductions_ = std::move(introductions); }

  std::shared_ptr<Transfer> start(Move message) override {
    return channel_of(message).start(
        calls_of({message}, message.direction == Move::Direction::out ? kReceiver : kSender), {message.tensor});
  }

  std::shared_ptr<Transfer> exchange(std::vector<Move> moves) override {
    std::vector<Tensor> tensors;
    std::transform(moves.begin(), moves.end(), std::back_inserter(tensors),
                   [](const Move& move) { return move.tensor; });
    return all_.start(calls_of(std::move(moves), std::nullopt), std::move(tensors));
  }

  std::shared_ptr<Transfer> all_reduce(Tensor tensor) override {
    const auto calls = [tensor](ncclComm_t comm, cudaStream_t stream) mutable {
      void* data = tensor.raw_mutable_data();
      return ncclAllReduce(data, data, static_cast<std::size_t>(tensor.numel()), nccl_type(tensor.dtype()), ncclSum,
                           comm, stream);
    };
    return all_.start(calls, {tensor});
  }

  void advance() override {
    all_.advance();
    for (auto& [direction, channel] : messages_) {
      channel->advance();
    }
  }

  std::unique_ptr<PointToPointBackend> split(int colour, int key, const Poll& poll) override {
    cuda::select(device_);
    while (!all_.is_idle()) {
      poll();
    }
    const NcclComm& parent = all_.comm();
    NcclComm part("ncclCommSplit", &parent, [&](ncclComm_t* into, ncclConfig_t* settings) {
      return ncclCommSplit(parent.raw(), colour, key, into, settings);
    });
    wait_for_comm(part, poll);
    return std::make_unique<NcclBackend>(device_, std::move(part));
  }

  void abort() noexcept override {
    all_.abort();
    for (auto& [direction, channel] : messages_) {
      channel->abort();
    }
  }

  void close() noexcept override {
    try {
      cuda::select(device_);
      for (auto& [direction, channel] : messages_) {
        if (channel->comm().exists()) {
          channel->comm().close();
        }
      }
      all_.comm().close();
    } catch (const Error&) {
      abort();
    }
  }

 private:
  // Each direction between two ranks has its own communicator of two ranks: NCCL runs the operations of one
  // communicator one after another, on any stream, so a waiting receive would block all later operations.
  static constexpr int kSender = 0;
  static constexpr int kReceiver = 1;

  NcclChannel& channel_of(const Move& message) {
    const bool sends = message.direction == Move::Direction::out;
    auto& channel = messages_[{message.peer, sends}];
    if (channel == nullptr) {
      const int peer = message.peer;
      const auto connect = [this, peer, sends]() -> NcclComm {
        if (sends) {
          const std::string id = new_nccl_id();
          introductions_.tell(peer, id);
          return init_nccl_comm(id, kSender, 2);
        }
        const auto id = introductions_.heard(peer);
        return id ? init_nccl_comm(*id, kReceiver, 2) : NcclComm();
      };
      channel = std::make_unique<NcclChannel>(device_, connect);
    }
    return *channel;
  }

  /// Returns the calls that make all moves concurrently, in one NCCL group. All moves use `peer` if it is set;
  /// otherwise each uses its own peer.
  static NcclChannel::Calls calls_of(std::vector<Move> moves, std::optional<int> peer) {
    return [moves = std::move(moves), peer](ncclComm_t comm, cudaStream_t stream) mutable {
      ncclResult_t failed = ncclSuccess;
      const auto note = [&](ncclResult_t result) {
        failed = failed == ncclSuccess && result != ncclInProgress ? result : failed;
      };
      note(ncclGroupStart());
      for (Move& move : moves) {
        const int other = peer.value_or(move.peer);
        note(move.direction == Move::Direction::out
                 ? ncclSend(move.tensor.raw_data(), move.tensor.bytes(), ncclUint8, other, comm, stream)
                 : ncclRecv(move.tensor.raw_mutable_data(), move.tensor.bytes(), ncclUint8, other, comm, stream));
      }
      note(ncclGroupEnd());  // also after an error, because NCCL counts group calls
      return failed;
    };
  }

  Device device_;
  NcclChannel all_;
  Introductions introductions_;
  std::map<std::pair<int, bool>, std::unique_ptr<NcclChannel>> messages_;  // by the other rank and the direction
};

}  // namespace

std::string new_nccl_id() {
  ncclUniqueId id;
  require_nccl_call(ncclGetUniqueId(&id), "ncclGetUniqueId", nullptr);
  return {id.internal, sizeof(id.internal)};
}

std::unique_ptr<PointToPointBackend> make_nccl_backend(Device device, const std::string& id, int rank, int size,
                                                       const PointToPointBackend::Poll& poll) {
  cuda::select(device);
  NcclComm comm = init_nccl_comm(id, rank, size);
  wait_for_comm(comm, poll);
  return std::make_unique<NcclBackend>(device, std::move(comm));
}

std::string gpu_name(Device device) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  std::array<char, 32> bus{};
  STAGECOACH_CUDA(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device.index));
  return fmt::format("{} {}", host.data(), bus.data());
}

}  // namespace stagecoach
