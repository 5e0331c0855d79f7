#include "parallel/launched.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "core/error.h"

namespace stagecoach {
namespace {

/// Where a launcher leaves the rank and the size.
struct Names {
  const char* rank;
  const char* size;
  const char* by;
};

// The first that is there counts: mpirun may run within a SLURM job. In a job, but outside of any srun, there is no
// number of tasks of a step.
constexpr Names kLaunchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "mpirun"},  // Open MPI
    {"PMI_RANK", "PMI_SIZE", "mpirun"},                          // MPICH and its kin
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "srun"},
    {"RANK", "WORLD_SIZE", "torchrun"},
};

int number_from(const char* name, const char* text) {
  int number = -1;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, number);
  if (error != std::errc{} || stop != end || number < 0) {
    throw UsageError(
        fmt::format("the environment says {}={}, which is no number of a process; unset it, or start with "
                    "mpirun, srun or torchrun",
                    name, text));
  }
  return number;
}

}  // namespace

std::optional<Launched> launched_in(const char* (*get)(const char* name)) {
  for (const Names& names : kLaunchers) {
    const char* rank = get(names.rank);
    const char* size = get(names.size);
    if (rank == nullptr || size == nullptr) {
      continue;
    }
    Launched launched{number_from(names.rank, rank), number_from(names.size, size), names.by};
    if (launched.rank >= launched.size) {
      throw UsageError(fmt::format("the environment says {}={} and {}={}: there is no such rank", names.rank,
                                   launched.rank, names.size, launched.size));
    }
    return launched;
  }
  return std::nullopt;
}

const std::optional<Launched>& launched() {
  static const std::optional<Launched> found =
      launched_in([](const char* name) -> const char* { return std::getenv(name); });
  return found;
}

bool speaks() { return !launched() || launched()->rank == 0; }

}  // namespace stagecoach
