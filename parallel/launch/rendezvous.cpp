#include "parallel/launch/rendezvous.h"

#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <sstream>
#include <vector>

#include "core/base/error.h"
#include "parallel/comm/communicator.h"
#include "parallel/launch/mpi.h"
#include "parallel/launch/tcp_store_token.h"

namespace stagecoach {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr const char* kLeft = "left";  // the queue that gets an entry when a process ends
// The rendezvous has one connection, a control channel two, and one of an earlier control channel may still be closing.
constexpr int kConnectionsPerRank = 4;

std::unique_ptr<TcpStoreServer> serve(const TcpStoreAddress& address, int ranks) {
  return std::make_unique<TcpStoreServer>(address, TcpStoreLimits{.clients = kConnectionsPerRank * ranks});
}

/// Returns the address of rank 0's store, which MPI broadcasts to all processes. MPI is used for nothing else.
TcpStoreAddress address_by_mpi(const World& world, const TcpStoreAddress& of_rank_zero) {
  constexpr std::int64_t kRoom = 128;
  std::string text = fmt::format("{} {} {} ", of_rank_zero.at.host, of_rank_zero.at.port, of_rank_zero.token);
  text.resize(kRoom);
  World by_mpi = world;
  by_mpi.transport = Transport::mpi;
  by_mpi.device = DeviceType::cpu;
  Tensor told = Tensor::from(std::vector<std::uint8_t>(text.begin(), text.end()), {kRoom});
  mpi::broadcast_from_rank_zero(by_mpi, told);
  std::istringstream words(std::string(static_cast<const char*>(told.raw_data()), told.bytes()));
  TcpStoreAddress address;
  words >> address.at.host >> address.at.port >> address.token;
  return address;
}

}  // namespace

Rendezvous& Rendezvous::instance(const World& world) {
  static const auto make = [&] {
    const LaunchEnvironment& process = launch_environment().value();
    const Seconds timeout(world.timeout);
    if (const std::optional<TcpAddress> address = master(process)) {
      return std::make_unique<Rendezvous>(process, TcpStoreAddress{*address, store_token()}, timeout);
    }
    auto server = process.rank == 0 ? serve({{own_address(), 0}, random_token()}, process.size) : nullptr;
    const TcpStoreAddress address = address_by_mpi(world, server ? server->address() : TcpStoreAddress{});
    return std::make_unique<Rendezvous>(process, address, timeout, std::move(server));
  };
  static const std::unique_ptr<Rendezvous> made = make();
  return *made;
}

Rendezvous::Rendezvous(const LaunchEnvironment& process, const TcpStoreAddress& address, Seconds timeout,
                       std::unique_ptr<TcpStoreServer> server)
    : server_(std::move(server)), address_(address), rank_(process.rank), size_(process.size) {
  if (rank_ == 0 && server_ == nullptr) {
    server_ = serve(address, size_);
    address_ = server_->address();
  }
  store_ = std::make_unique<TcpStore>(address_, "rank 0", timeout, fmt::format("rank {}", rank_));
  store_->push_when_lost(kLeft, "");
}

Rendezvous::~Rendezvous() {
  if (server_ == nullptr) {
    return;
  }
  try {
    const TcpDeadline deadline = store_->deadline();
    for (int others = 1; others < size_; ++others) {
      store_->pop(kLeft, deadline);
    }
  } catch (const CommError&) {  // the others will not connect any more
  }
}

void Rendezvous::broadcast_from_rank_zero(Tensor& values) {
  const std::string key = fmt::format("agreement {}", agreements_++);
  Tensor here = values.to(Device{});
  if (rank_ == 0) {
    store_->set(key, {static_cast<const char*>(here.raw_data()), here.bytes()});
    return;
  }
  const std::string told = store_->get(key);
  STAGECOACH_CHECK(told.size() == here.bytes(), "broadcast from rank 0: expected {} bytes, got {}", here.bytes(),
                   told.size());
  std::memcpy(here.raw_mutable_data(), told.data(), told.size());
  values.copy_from(here.to(values.device()));
}

}  // namespace stagecoach
