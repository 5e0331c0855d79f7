// In a build without Gloo.

#include "core/base/error.h"
#include "parallel/launch/transports.h"

namespace stagecoach::gloo_ranks {
namespace {

[[noreturn]] void refuse() {
  throw UsageError(
      "transport gloo: this build has no Gloo; install it (scripts/setup.sh --for-gloo) and build again, start the "
      "program with mpirun, or use transport `thread`");
}

}  // namespace

bool is_built_in() { return false; }

void run_rank(const World&, const std::function<void(Rank&)>&) { refuse(); }

void broadcast_from_rank_zero(const World&, Tensor&) { refuse(); }

}  // namespace stagecoach::gloo_ranks
