#pragma once
/// @file
/// How processes that a launcher started find each other: rank 0 serves a store, and the others learn where. Where the
/// launcher gives MASTER_ADDR and MASTER_PORT, as torchrun does, the store is there, and asks for the token that all
/// ranks find by themselves; otherwise MPI tells them where it is, and a token that rank 0 has made up.

#include <memory>

#include "core/tensor.h"
#include "parallel/comm/tcp/tcp_store.h"
#include "parallel/launch/launch.h"
#include "parallel/launch/launch_environment.h"

namespace stagecoach {

/// This process's part of it, from the first use to the end of the program.
class Rendezvous {
 public:
  /// Finds the others at the first call; all processes make it. Throws UsageError where it is not known where they are,
  /// CommError when rank 0 does not answer, and UsageError when it does not know the token, or two processes say that
  /// they are the same rank.
  static Rendezvous& instance(const World& world);

  /// At `address`; rank 0 serves there unless it gives a `server` that does already.
  Rendezvous(const LaunchEnvironment& process, const TcpStoreAddress& address, std::chrono::duration<double> timeout,
             std::unique_ptr<TcpStoreServer> server = nullptr);
  /// Rank 0 waits until all others have come and gone, or the timeout has passed.
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  const TcpStoreAddress& address() const { return address_; }
  TcpStore& store() { return *store_; }
  /// Makes `values` those of rank 0. All processes call it.
  void broadcast_from_rank_zero(Tensor& values);

 private:
  std::unique_ptr<TcpStoreServer> server_;
  TcpStoreAddress address_;
  std::unique_ptr<TcpStore> store_;
  int rank_;
  int size_;
  int agreements_ = 0;
};

}  // namespace stagecoach
