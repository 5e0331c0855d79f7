#include "parallel/launch/launch_environment.h"

#include <cstdlib>
#include <cstring>

#include "core/base/parse.h"
#include "core/base/throw_if.h"

namespace stagecoach {
namespace {

/// The variables in which a launcher passes the rank and the size.
struct Names {
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* by;
  const char* mark = rank;  // this one must be set, too
};

// In the order of the table in the header.
constexpr Names kLaunchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "torchrun", "TORCHELASTIC_RUN_ID"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "mpirun"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "mpirun", "MPI_LOCALRANKID"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "srun"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "mpirun"},
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "torchrun"},
};

int process_number(const char* name, const char* text) {
  const auto number = number_from<int>(text);
  throw_if<UsageError>(
      !number || *number < 0,
      "the environment variable {} is not valid: expected a whole number, got '{}'; unset it, or start "
      "the program with mpirun, srun or torchrun",
      name, text);
  return *number;
}

/// Returns whether torchrun serves its own store at MASTER_PORT, as it usually does; ours then uses the next port.
bool is_port_torchruns(Environment get) {
  const char* says = get("TORCHELASTIC_USE_AGENT_STORE");
  return says != nullptr && std::strcmp(says, "True") == 0;
}

}  // namespace

const char* process_environment(const char* name) { return std::getenv(name); }

std::optional<LaunchEnvironment> launched_in(Environment get) {
  for (const Names& names : kLaunchers) {
    const char* rank = get(names.rank);
    const char* size = get(names.size);
    if (rank == nullptr || size == nullptr || get(names.mark) == nullptr) {
      continue;
    }
    LaunchEnvironment launched{process_number(names.rank, rank), process_number(names.size, size), names.by};
    const char* local_rank = get(names.local_rank);
    launched.local_rank = local_rank == nullptr ? launched.rank : process_number(names.local_rank, local_rank);
    launched.size_variable = names.size;
    launched.has_pmix = launched.by != "srun" || get("PMIX_RANK") != nullptr;
    throw_if<UsageError>(
        launched.rank >= launched.size,
        "the environment variables {0}={1} and {2}={3} contradict each other: expected a rank below the "
        "number of processes; unset them, or start the program with mpirun, srun or torchrun",
        names.rank, launched.rank, names.size, launched.size);
    return launched;
  }
  return std::nullopt;
}

const std::optional<LaunchEnvironment>& launch_environment() {
  static const std::optional<LaunchEnvironment> found = launched_in(process_environment);
  return found;
}

std::optional<TcpAddress> master(const LaunchEnvironment& process, Environment get) {
  const char* host = get("MASTER_ADDR");
  const char* port = get("MASTER_PORT");
  if (host == nullptr && port == nullptr && process.by != "torchrun") {
    return std::nullopt;
  }
  throw_if<UsageError>(host == nullptr || port == nullptr || *host == '\0',
                       "the processes cannot find each other: {} is not set; set MASTER_ADDR, the host of rank 0, and "
                       "MASTER_PORT, or start the program with torchrun",
                       port == nullptr ? "MASTER_PORT" : "MASTER_ADDR");
  const auto number = number_from<int>(port);
  const int last = 65535 - (is_port_torchruns(get) ? 1 : 0);
  throw_if<UsageError>(!number || *number < 1 || *number > last,
                       "MASTER_PORT={} is not a port: expected a whole number from 1 to {}", port, last);
  return TcpAddress{host, is_port_torchruns(get) ? *number + 1 : *number};
}

bool is_rank_zero() { return !launch_environment() || launch_environment()->rank == 0; }

}  // namespace stagecoach
