#include "parallel/comm/gloo/gloo_mesh.h"

#include <fmt/format.h>
#include <gloo/allreduce.h>
#include <gloo/context.h>
#include <gloo/math.h>
#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/pair.h>
#include <unistd.h>

#include <csignal>
#include <sstream>
#include <thread>
#include <utility>

#include "core/base/error.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/tcp/admission.h"

namespace stagecoach {
namespace {

namespace tcp = gloo::transport::tcp;

constexpr const char* kGroup = "gloo";                // in the hello of a connection between two ranks
constexpr std::chrono::milliseconds kNap(2);          // between looks at failures, aborts and the deadline
constexpr std::chrono::milliseconds kPatience(1000);  // for the news of which rank has failed

/// A connection that was made without Gloo.
class GlooPair final : public tcp::Pair {
 public:
  using tcp::Pair::Pair;

  /// Takes over a connected socket. Gloo's constructor opens a port on the loopback interface, which is closed here
  /// with whatever may have come through it.
  void use(int descriptor) {
    const std::lock_guard lock(m_);
    throwIfException();
    device_->unregisterDescriptor(fd_, this);
    ::close(fd_);
    fd_ = descriptor;
    handleConnected();
  }
};

/// What Gloo's own collectives run in.
class GlooWorld final : public gloo::Context {
 public:
  GlooWorld(int rank, int size, std::shared_ptr<gloo::transport::Device> device,
            std::shared_ptr<gloo::transport::Context> transport)
      : gloo::Context(rank, size) {
    device_ = std::move(device);
    transportContext_ = std::move(transport);
  }
};

template <class T>
void sum_by_gloo(const std::shared_ptr<gloo::Context>& world, Tensor& tensor, std::uint32_t tag,
                 std::chrono::milliseconds timeout) {
  gloo::AllreduceOptions options(world);
  options.setOutput(static_cast<T*>(tensor.raw_mutable_data()), static_cast<std::size_t>(tensor.numel()));
  options.setReduceFunction([](void* sum, const void* a, const void* b, std::size_t n) { gloo::sum<T>(sum, a, b, n); });
  options.setTag(tag);
  options.setTimeout(timeout);
  gloo::allreduce(options);
}

}  // namespace

class GlooMesh::Context final : public tcp::Context {
 public:
  Context(const std::shared_ptr<tcp::Device>& device, int rank, int size, std::chrono::milliseconds timeout)
      : tcp::Context(device, rank, size) {
    setTimeout(timeout);
  }
  void connect(int rank, TcpSocket socket) {
    auto pair = std::make_unique<GlooPair>(this, device_.get(), rank, getTimeout());
    pair->use(socket.release());
    pairs_[static_cast<std::size_t>(rank)] = std::move(pair);
  }
  /// Ends all connections: after that, Gloo's thread touches no buffer.
  void disconnect() { pairs_.clear(); }
  std::shared_ptr<gloo::Context> world() {
    return std::make_shared<GlooWorld>(rank, size, device_, shared_from_this());
  }
};

void GlooBuffer::start(std::uint64_t slot) {
  direction_ == Direction::out ? send(peer_, slot, 0, size) : recv(peer_, slot, 0, size);
}

bool GlooBuffer::is_done() {
  const std::lock_guard lock(m_);
  if (!has_completed()) {
    throwIfException();
  }
  return has_completed();
}

bool GlooBuffer::has_ended() noexcept {
  const std::lock_guard lock(m_);
  return has_completed() || ex_ != nullptr;
}

void GlooBuffer::nap(std::chrono::milliseconds longest) {
  std::unique_lock lock(m_);
  std::condition_variable& changed = direction_ == Direction::out ? sendCv_ : recvCv_;
  changed.wait_for(lock, longest, [this] { return has_completed() || ex_ != nullptr; });
}

GlooMesh::GlooMesh(ControlChannel& control, const std::string& token, int rank, int size)
    : control_(control), rank_(rank), size_(size) {
  std::signal(SIGPIPE, SIG_IGN);  // Gloo may write to dead processes; that must not end this one
  const auto device = std::make_shared<tcp::Device>(tcp::CreateDeviceAttr("127.0.0.1"));
  const auto timeout = std::chrono::ceil<std::chrono::milliseconds>(control.timeout());
  context_ = std::make_shared<Context>(device, rank, size, timeout);
  connect(token);
}

GlooMesh::~GlooMesh() { context_->disconnect(); }

/// Each rank connects to those before it, and is connected to by those after it.
void GlooMesh::connect(const std::string& token) {
  int peer = 0;
  ControlWait control_wait(control_, {}, [&] { return fmt::format("rank {}: connecting to rank {}", rank_, peer); });
  TcpAdmission admission({{control_.local_host(), 0}, token}, {}, TcpAdmission::report_on_stderr);
  const TcpAddress& here = admission.address().at;
  control_.post(ControlChannel::kToAll, fmt::format("gloo/{}", rank_), fmt::format("{} {}", here.host, here.port));
  const TcpHello hello(token, kGroup, rank_, size_);
  for (peer = 0; peer < rank_; ++peer) {
    RankAddress there{{}, token};
    std::istringstream(control_wait.take(fmt::format("gloo/{}", peer))) >> there.at.host >> there.at.port;
    context_->connect(peer,
                      connect_to_rank(there, fmt::format("rank {}", peer), hello, deadline_after(control_.timeout())));
  }
  std::vector<TcpSocket> sockets(static_cast<std::size_t>(size_));
  const auto socket_of = [&](int r) -> TcpSocket& { return sockets[static_cast<std::size_t>(r)]; };
  std::vector<pollfd> queries;
  for (peer = rank_ + 1; peer < size_; ++peer) {
    while (socket_of(peer).descriptor() < 0) {
      control_wait.check();
      queries.clear();
      admission.watch(queries);
      static_cast<void>(::poll(queries.data(), queries.size(), TcpAdmission::kPoll));
      for (TcpAdmission::Client& client : admission.advance()) {
        const int from = client.hello.rank;
        if (from > rank_ && from < size_ && socket_of(from).descriptor() < 0) {
          accept_client(client.socket);
          socket_of(from) = std::move(client.socket);
        }
      }
    }
  }
  for (peer = rank_ + 1; peer < size_; ++peer) {
    context_->connect(peer, std::move(socket_of(peer)));
  }
}

template <class Call>
auto GlooMesh::guarded(int peer, const ErrorContext& context, const Call& call) {
  try {
    return call();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {  // Gloo's
    // The news of a failed rank may still be under way, and says more.
    for (const auto end = std::chrono::steady_clock::now() + kPatience;
         !control_.has_failed() && std::chrono::steady_clock::now() < end;) {
      std::this_thread::sleep_for(kNap);
    }
    if (control_.has_failed()) {
      throw stopped(context(), control_.failure());
    }
    throw CommError(fmt::format("{}: the connection to rank {} is lost ({})", context(), peer, error.what()));
  }
}

std::shared_ptr<GlooBuffer> GlooMesh::start(GlooBuffer::Direction direction, int peer, std::uint64_t slot,
                                            std::shared_ptr<void> memory, void* data, std::size_t bytes,
                                            const ErrorContext& context) {
  auto buffer = std::make_shared<GlooBuffer>(context_, direction, peer, std::move(memory), data, bytes);
  guarded(peer, context, [&] { buffer->start(slot); });
  return buffer;
}

void GlooMesh::wait(GlooBuffer& buffer, const WaitPolicy& policy, const ErrorContext& context,
                    const std::function<void()>& meanwhile) {
  ControlWait control_wait(control_, policy.stop, context, &policy.renewed);
  guarded(buffer.peer(), context, [&] {
    while (!buffer.is_done()) {
      meanwhile();
      control_wait.check();
      buffer.nap(kNap);
    }
  });
}

bool GlooMesh::is_done(GlooBuffer& buffer, const ErrorContext& context) {
  return guarded(buffer.peer(), context, [&] { return buffer.is_done(); });
}

bool GlooMesh::all_reduce(Tensor& tensor, std::uint32_t tag, const ErrorContext& context) {
  const auto timeout = std::chrono::ceil<std::chrono::milliseconds>(control_.timeout());
  const auto sum = [&](auto type) {
    guarded((rank_ + 1) % size_, context,
            [&] { sum_by_gloo<decltype(type)>(context_->world(), tensor, tag, timeout); });
    return true;
  };
  switch (tensor.dtype()) {
    case DType::float32:
      return sum(float{});
    case DType::float64:
      return sum(double{});
    case DType::int32:
      return sum(std::int32_t{});
    case DType::uint8:
      return sum(std::uint8_t{});
    case DType::float16:
      return false;
  }
  fail("gloo: unknown dtype");
}

void GlooMesh::leak(std::shared_ptr<GlooBuffer> buffer) {
  const std::lock_guard lock(mutex_);
  leaked_.push_back(std::move(buffer));
}

void GlooMesh::leave() {
  try {
    control_.post(ControlChannel::kToAll, "leaves", "");
    ControlWait control_wait(control_, {}, [] { return "leaving"; });
    for (int others = 1; others < size_; ++others) {
      static_cast<void>(control_wait.take("leaves"));
    }
  } catch (const CommError&) {  // what this rank had to do is done
  }
}

}  // namespace stagecoach
