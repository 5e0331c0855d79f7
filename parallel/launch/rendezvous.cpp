#include "parallel/launch/rendezvous.h"

#include <fmt/format.h>

#include <cstring>
#include <sstream>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "parallel/comm/communicator.h"
#include "parallel/launch/run_token.h"
#include "parallel/launch/transports.h"

namespace stagecoach {
namespace {

using Seconds = std::chrono::duration<double>;

/// Returns the address of rank 0's bootstrap, which MPI broadcasts to all processes. MPI is used for nothing else.
RankAddress address_by_mpi(const World& world, const RankAddress& of_rank_zero) {
  constexpr std::int64_t kBytes = 512;
  std::string text = fmt::format("{} {} {} ", of_rank_zero.at.host, of_rank_zero.at.port, of_rank_zero.token);
  text.resize(kBytes);
  World by_mpi = world;
  by_mpi.transport = Transport::mpi;
  by_mpi.device = DeviceType::cpu;
  Tensor told = Tensor::from(std::vector<std::uint8_t>(text.begin(), text.end()), {kBytes});
  mpi::broadcast_from_rank_zero(by_mpi, told);
  std::istringstream words(std::string(static_cast<const char*>(told.raw_data()), told.bytes()));
  RankAddress address;
  words >> address.at.host >> address.at.port >> address.token;
  return address;
}

}  // namespace

Rendezvous& Rendezvous::instance(const World& world) {
  static const auto make = [&] {
    const LaunchEnvironment& process = launch_environment().value();
    const Seconds timeout(world.timeout);
    if (const std::optional<TcpAddress> address = master(process)) {
      return std::make_unique<Rendezvous>(process, RankAddress{*address, run_token()}, timeout);
    }
    std::unique_ptr<BootstrapServer> server;
    if (process.rank == 0) {
      server = std::make_unique<BootstrapServer>(RankAddress{{own_address(), 0}, random_token()}, process.size);
    }
    const RankAddress address = address_by_mpi(world, server ? server->address() : RankAddress{});
    return std::make_unique<Rendezvous>(process, address, timeout, std::move(server));
  };
  static const std::unique_ptr<Rendezvous> made = make();
  return *made;
}

Rendezvous::Rendezvous(const LaunchEnvironment& process, const RankAddress& address, Seconds timeout,
                       std::unique_ptr<BootstrapServer> server)
    : timeout_(timeout),
      join_by_(deadline_after(timeout)),
      server_(std::move(server)),
      address_(address),
      rank_(process.rank),
      size_(process.size) {
  if (rank_ == 0 && server_ == nullptr) {
    server_ = std::make_unique<BootstrapServer>(address, size_);
    address_ = server_->address();
  }
  control_.emplace(address_, "processes", rank_, size_, timeout);
}

Rendezvous::~Rendezvous() {
  control_.reset();
  if (server_ != nullptr) {
    server_->wait_until_left(join_by_, deadline_after(timeout_));
  }
}

std::unique_ptr<ControlChannel> Rendezvous::connect_run(Seconds timeout) {
  return std::make_unique<ControlChannel>(address_, fmt::format("run {}", runs_++), rank_, size_, timeout);
}

void Rendezvous::broadcast_from_rank_zero(Tensor& values) {
  const std::string key = fmt::format("broadcast {}", broadcasts_++);
  Tensor here = values.to(Device{});
  if (rank_ == 0) {
    return control_->post(ControlChannel::kToAll, key, {static_cast<const char*>(here.raw_data()), here.bytes()});
  }
  const std::string text = ControlWait(*control_, {}, [this] {
                             return fmt::format("rank {}: broadcasting rank 0's measurements", rank_);
                           }).take(key);
  STAGECOACH_CHECK(text.size() == here.bytes(), "broadcast from rank 0: expected {} bytes, got {}", here.bytes(),
                   text.size());
  std::memcpy(here.raw_mutable_data(), text.data(), text.size());
  values.copy_from(here.to(values.device()));
}

}  // namespace stagecoach
