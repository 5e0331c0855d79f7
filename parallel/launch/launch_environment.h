#pragma once
/// @file
/// What a launcher such as mpirun says about this process.

#include <optional>
#include <string>

#include "parallel/comm/tcp/tcp_socket.h"

namespace stagecoach {

/// One process of several that were started together.
struct LaunchEnvironment {
  int rank = 0;  ///< of this one
  int size = 1;
  std::string by;        ///< "mpirun", "srun", or "torchrun"
  int local_rank = 0;    ///< among those of this machine; the rank where the launcher does not say
  bool has_pmix = true;  ///< whether Open MPI's processes can find each other; not by every srun
};

using Environment = const char* (*)(const char* name);  ///< returns a variable, or null

/// Read from the environment, once. Nothing when this process was started by itself. Throws UsageError when what it
/// says is not a rank of a world.
const std::optional<LaunchEnvironment>& launch_environment();

/// The same from an environment.
std::optional<LaunchEnvironment> launched_in(Environment get);

/// Where the processes find each other: by MASTER_ADDR and MASTER_PORT. Nothing when neither is set and the launcher is
/// one that MPI knows. Throws UsageError when one of them is missing or wrong.
std::optional<TcpAddress> master(const LaunchEnvironment& process);
std::optional<TcpAddress> master_in(const LaunchEnvironment& process, Environment get);

/// Whether this process prints and writes for all: rank 0, or the only one.
bool is_rank_zero();

}  // namespace stagecoach
