#pragma once
/// @file
/// What the environment variables of a launcher such as mpirun say about this process.

#include <optional>
#include <string>

#include "parallel/comm/tcp/tcp_socket.h"

namespace stagecoach {

/// This process, as one of several that were started together.
struct LaunchEnvironment {
  int rank = 0;  ///< of this process
  int size = 1;
  std::string by;                  ///< "mpirun", "srun", or "torchrun"
  int local_rank = 0;              ///< number on this machine; `rank` if the launcher does not set it
  const char* size_variable = "";  ///< the variable that says `size`
  bool has_pmix = true;            ///< whether Open MPI's processes can find each other; not with every srun
};

using Environment = const char* (*)(const char* name);  ///< returns the value of a variable, or null

/// Returns the value of an environment variable of this process, or null.
const char* process_environment(const char* name);

/// Returns what the environment says; reads it only once. Returns nullopt if no launcher started this process. Throws
/// UsageError if the variables do not describe a rank of a world.
const std::optional<LaunchEnvironment>& launch_environment();

/// Returns the same, read with `get`.
std::optional<LaunchEnvironment> launched_in(Environment get);

/// Returns the address at which the processes find each other, from MASTER_ADDR and MASTER_PORT. Returns nullopt if
/// neither is set and the launcher is one that MPI supports. Otherwise throws UsageError if one of them is missing or
/// invalid.
std::optional<TcpAddress> master(const LaunchEnvironment& process, Environment get = process_environment);

/// Returns whether this process prints and writes files for all processes: rank 0, or the only process.
bool is_rank_zero();

}  // namespace stagecoach
