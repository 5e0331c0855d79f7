// In a build without NCCL.

#include "core/base/error.h"
#include "parallel/launch/transports.h"

namespace stagecoach::nccl {
namespace {

[[noreturn]] void refuse() {
  throw UsageError(
      "transport nccl: this build has no NCCL; install NCCL (nccl.h and libnccl) with CUDA and run scripts/build.sh "
      "cuda, or use transport `thread`, in which ranks share GPUs");
}

}  // namespace

bool is_built_in() { return false; }

void run_ranks(const World&, const std::function<void(Rank&)>&) { refuse(); }

void broadcast_from_rank_zero(const World&, Tensor&) { refuse(); }

}  // namespace stagecoach::nccl
