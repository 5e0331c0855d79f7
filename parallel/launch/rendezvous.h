#pragma once
/// @file
/// How processes that a launcher started find each other: rank 0 serves a bootstrap, and the others learn its address.
/// If the launcher sets MASTER_ADDR and MASTER_PORT, as torchrun does, the bootstrap is there, and requires the token
/// that each rank finds by itself (run_token.h); otherwise MPI broadcasts the address and a token that rank 0 has
/// generated.

#include <memory>
#include <optional>
#include <string>

#include "core/tensor.h"
#include "parallel/comm/tcp/bootstrap.h"
#include "parallel/comm/tcp/control_channel.h"
#include "parallel/launch/launch.h"
#include "parallel/launch/launch_environment.h"

namespace stagecoach {

/// This process's end of the rendezvous, from the first use to the end of the program.
class Rendezvous {
 public:
  /// Finds the other processes on the first call, which all processes make. Throws UsageError if the address is not
  /// known, if rank 0 does not admit this process, or if two processes claim the same rank; throws CommError if rank 0
  /// does not answer.
  static Rendezvous& instance(const World& world);

  /// Connects to the bootstrap at `address`. Rank 0 also starts the server there, unless it passes a running `server`.
  Rendezvous(const LaunchEnvironment& process, const RankAddress& address, std::chrono::duration<double> timeout,
             std::unique_ptr<BootstrapServer> server = nullptr);
  /// On rank 0, waits until all other processes have connected and left, or the timeout has passed.
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  const RankAddress& address() const { return address_; }
  /// Returns a new control channel of all processes, for one run. All processes call it.
  std::unique_ptr<ControlChannel> connect_run(std::chrono::duration<double> timeout);
  /// Replaces `values` with those of rank 0. All processes call it.
  void broadcast_from_rank_zero(Tensor& values);

 private:
  const std::chrono::duration<double> timeout_;
  const TcpDeadline join_by_;
  std::unique_ptr<BootstrapServer> server_;
  RankAddress address_;
  std::optional<ControlChannel> control_;
  int rank_;
  int size_;
  int runs_ = 0;
  int broadcasts_ = 0;
};

}  // namespace stagecoach
