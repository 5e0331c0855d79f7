#pragma once
/// @file
/// What the environment variables of a launcher such as mpirun say about this process.
///
/// Launchers are started within each other, and processes inherit the variables of all of them. The first row whose
/// variables are set decides:
///
/// | variables | launcher |
/// |---|---|
/// | `RANK`, `WORLD_SIZE`, with `TORCHELASTIC_RUN_ID` | torchrun, which srun or mpirun may have started |
/// | `OMPI_COMM_WORLD_RANK`, `OMPI_COMM_WORLD_SIZE` | mpirun of Open MPI, in a SLURM job or not |
/// | `PMI_RANK`, `PMI_SIZE`, with `MPI_LOCALRANKID` | mpirun of MPICH or Intel MPI, in a SLURM job or not |
/// | `SLURM_PROCID`, `SLURM_STEP_NUM_TASKS` | srun; with `--mpi=pmi2` it sets `PMI_RANK` and `PMI_SIZE`, too |
/// | `PMI_RANK`, `PMI_SIZE` | another launcher, which counts as mpirun |
/// | `RANK`, `WORLD_SIZE` | variables set by hand, which count as torchrun's |
///
/// A shell or script in a SLURM job has variables of the job (`SLURM_JOB_ID`, `SLURM_NTASKS`, in `sbatch` also
/// `SLURM_PROCID`), but outside srun no `SLURM_STEP_NUM_TASKS`: it was not started by a launcher.

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
