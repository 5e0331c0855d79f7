#pragma once
/// @file
/// How processes that a launcher started find each other: rank 0 serves a store, and the others learn its address. If
/// the launcher sets MASTER_ADDR and MASTER_PORT, as torchrun does, the store is there, and requires the token that
/// each rank finds by itself (tcp_store_token.h); otherwise MPI broadcasts the address and a token that rank 0 has
/// generated.

#include <memory>

#include "core/tensor.h"
#include "parallel/comm/tcp/tcp_store.h"
#include "parallel/launch/launch.h"
#include "parallel/launch/launch_environment.h"

namespace stagecoach {

/// This process's end of the rendezvous, from the first use to the end of the program.
class Rendezvous {
 public:
  /// Finds the other processes on the first call, which all processes make. Throws UsageError if the address is not
  /// known, if rank 0 refuses the token, or if two processes claim the same rank; throws CommError if rank 0 does not
  /// answer.
  static Rendezvous& instance(const World& world);

  /// Connects to the store at `address`. Rank 0 also starts the server there, unless it passes a running `server`.
  Rendezvous(const LaunchEnvironment& process, const TcpStoreAddress& address, std::chrono::duration<double> timeout,
             std::unique_ptr<TcpStoreServer> server = nullptr);
  /// On rank 0, waits until all other processes have connected and left, or the timeout has passed.
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  const TcpStoreAddress& address() const { return address_; }
  TcpStore& store() { return *store_; }
  /// Replaces `values` with those of rank 0. All processes call it.
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
