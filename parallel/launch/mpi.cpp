#include <mpi.h>

#include "parallel/launch/transports.h"
#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

#include <chrono>
#include <thread>
#include <utility>

#include "core/base/throw_if.h"
#include "parallel/comm/mpi/mpi_communicator.h"
#include "parallel/launch/run_ranks.h"

namespace stagecoach::mpi {
namespace {

using Seconds = std::chrono::duration<double>;

bool takes_device_pointers() {
#if defined(MPIX_CUDA_AWARE_SUPPORT) && MPIX_CUDA_AWARE_SUPPORT
  return MPIX_Query_cuda_support() == 1;
#else
  return false;
#endif
}

MpiWorld& open(const World& world) {
  throw_if<UsageError>(
      world.device == DeviceType::cuda && !takes_device_pointers(),
      "transport mpi: this MPI was built without CUDA and cannot send tensors from a GPU; use transport `nccl`, or "
      "device `cpu`");
  MpiWorld& mpi = MpiWorld::instance(Seconds(world.timeout));
  throw_if<Error>(mpi.failed(), "transport mpi: MPI cannot continue after a rank has failed; start the program again");
  return mpi;
}

double seconds_now() { return Seconds(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// Returns on rank `other` how far rank 0's clock is ahead of its own. The rank asks for the time repeatedly, and
/// assumes that the fastest answer was given halfway between request and reply.
double clock_ahead(MPI_Comm comm, int rank, int other) {
  constexpr int kQuestions = 20;
  double ahead = 0;
  double fastest = 1e9;
  for (int i = 0; i < kQuestions; ++i) {
    double time = seconds_now();
    if (rank == 0) {
      MPI_Recv(nullptr, 0, MPI_BYTE, other, 0, comm, MPI_STATUS_IGNORE);
      time = seconds_now();
      MPI_Send(&time, 1, MPI_DOUBLE, other, 0, comm);
    } else {
      const double asked = time;
      MPI_Send(nullptr, 0, MPI_BYTE, 0, 0, comm);
      MPI_Recv(&time, 1, MPI_DOUBLE, 0, 0, comm, MPI_STATUS_IGNORE);
      const double took = seconds_now() - asked;
      if (took < fastest) {
        fastest = took;
        ahead = time - (asked + took / 2);
      }
    }
  }
  return ahead;
}

/// Returns the same moment on every rank, by the rank's own clock: clocks that start there show the same time.
std::chrono::steady_clock::time_point common_start(MPI_Comm comm, int rank, int size) {
  double ahead = 0;
  for (int other = 1; other < size; ++other) {
    if (rank == 0 || rank == other) {
      ahead = clock_ahead(comm, rank, other);
    }
  }
  double start = seconds_now();
  MPI_Bcast(&start, 1, MPI_DOUBLE, 0, comm);
  return std::chrono::steady_clock::time_point(
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(Seconds(start - ahead)));
}

void run_body(const World& world, MpiWorld& mpi, const std::shared_ptr<FlightRecorder>& recorder,
              const std::function<void(Rank&)>& body) {
  const int r = mpi.rank();
  const Device device = device_of(world, world.device == DeviceType::cpu ? r : mpi.local_rank());
  require_device(device);
  MPI_Comm own = MPI_COMM_NULL;
  std::chrono::steady_clock::time_point start;
  mpi.guard("starting all ranks", [&] {
    MPI_Comm_dup(mpi.comm(), &own);
    start = common_start(own, r, world.ranks);
  });
  const bool enough = static_cast<unsigned>(mpi.local_size() * world.threads) <= std::thread::hardware_concurrency();
  const WaitMode mode = enough && world.ranks > 1 ? WaitMode::polling : WaitMode::sleeping;
  auto clock = make_clock(world.clock, device, world.network, world.device_model, start);
  MpiCommunicator comm(mpi, own, world_group(world, r, device, std::move(clock), recorder),
                       std::make_shared<MpiReceives>(mpi), mode);
  Rank rank{r, world.ranks, device, comm};
  body(rank);
}

}  // namespace

bool needs_pmix() {
#ifdef OPEN_MPI
  return true;
#else
  return false;
#endif
}

void run_rank(const World& world, const std::function<void(Rank&)>& body) {
  MpiWorld& mpi = open(world);
  throw_if<UsageError>(mpi.size() != world.ranks,
                       "the number of processes is wrong: expected one per rank ({1}), got {0}; start the program with "
                       "mpirun -np {2}, or with `ranks` {3}",
                       mpi.size(), world.ranks, world.ranks, mpi.size());
  run_as_process(
      mpi.rank(), [&](const auto& recorder) { run_body(world, mpi, recorder, body); },
      [&](const std::string& why) { mpi.fail(why); });
}

void broadcast_from_rank_zero(const World& world, Tensor& values) {
  MpiWorld& mpi = open(world);
  mpi.guard("broadcasting rank 0's measurements",
            [&] { MPI_Bcast(values.raw_mutable_data(), static_cast<int>(values.bytes()), MPI_BYTE, 0, mpi.comm()); });
}

}  // namespace stagecoach::mpi
