// In a build without MPI.

#include "core/base/error.h"
#include "parallel/launch/transports.h"

namespace stagecoach::mpi {
namespace {

[[noreturn]] void refuse() {
  throw UsageError(
      "transport mpi: this build has no MPI; run scripts/setup.sh --for-mpi and scripts/build.sh release, or start the "
      "program without mpirun to run the ranks as threads");
}

}  // namespace

bool needs_pmix() { return false; }

void run_rank(const World&, const std::function<void(Rank&)>&) { refuse(); }

void broadcast_from_rank_zero(const World&, Tensor&) { refuse(); }

}  // namespace stagecoach::mpi
