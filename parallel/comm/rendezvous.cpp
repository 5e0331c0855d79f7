#include "parallel/comm/rendezvous.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "core/error.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/mpi.h"

namespace stagecoach {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr const char* kThisMachine = "127.0.0.1";
constexpr const char* kLeft = "left";  // the queue that tells rank 0 of each process that ends

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

/// Where rank 0's store is, as MPI tells all processes. MPI does nothing else.
TcpAddress address_by_mpi(const World& world, int port) {
  struct Place {
    std::array<char, 256> host{};
    std::int32_t port = 0;
  };
  Place place;
  const std::string mine = host_name();
  std::memcpy(place.host.data(), mine.data(), mine.size());
  place.port = port;
  World by_mpi = world;
  by_mpi.transport = Transport::mpi;
  by_mpi.device = DeviceType::cpu;
  Tensor told = Tensor::empty({sizeof(Place)}, DType::uint8);
  std::memcpy(told.raw_mutable_data(), &place, sizeof(place));
  mpi::agree_on(by_mpi, told);
  std::memcpy(&place, told.raw_data(), sizeof(place));
  return {place.host.data() == mine ? kThisMachine : place.host.data(), place.port};
}

}  // namespace

Rendezvous& Rendezvous::instance(const World& world) {
  static const auto make = [&] {
    const Launched& process = launched().value();
    const Seconds timeout(world.timeout);
    if (const std::optional<TcpAddress> address = master(process)) {
      return std::make_unique<Rendezvous>(process, *address, timeout);
    }
    auto server = process.rank == 0 ? std::make_unique<TcpStoreServer>(TcpAddress{}) : nullptr;
    const TcpAddress address = address_by_mpi(world, server ? server->port() : 0);
    return std::make_unique<Rendezvous>(process, address, timeout, std::move(server));
  };
  static const std::unique_ptr<Rendezvous> made = make();
  return *made;
}

Rendezvous::Rendezvous(const Launched& process, const TcpAddress& address, Seconds timeout,
                       std::unique_ptr<TcpStoreServer> server)
    : server_(std::move(server)), address_(address), rank_(process.rank), size_(process.size) {
  if (rank_ == 0) {
    if (server_ == nullptr) {
      server_ = std::make_unique<TcpStoreServer>(TcpAddress{"", address.port});
    }
    address_ = {kThisMachine, server_->port()};
  }
  store_ = std::make_unique<TcpStore>(address_, "rank 0", timeout);
  if (store_->add(fmt::format("processes of rank {}", rank_), 1) != 1) {
    throw UsageError(fmt::format("two processes say that they are rank {}; look at RANK, or for another run at {}",
                                 rank_, to_string(address)));
  }
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
  } catch (const CommError&) {  // they do not come any more
  }
}

void Rendezvous::agree_on(Tensor& values) {
  const std::string key = fmt::format("agreement {}", agreements_++);
  Tensor here = values.to(Device{});
  if (rank_ == 0) {
    store_->set(key, {static_cast<const char*>(here.raw_data()), here.bytes()});
    return;
  }
  const std::string told = store_->get(key);
  STAGECOACH_CHECK(told.size() == here.bytes(), "an agreement on {} bytes, rank 0 has {}", here.bytes(), told.size());
  std::memcpy(here.raw_mutable_data(), told.data(), told.size());
  values.copy_from(here.to(values.device()));
}

}  // namespace stagecoach
