// How long a remote call takes beside a raw round trip: 1,000 calls one after the other, and 1,000 that are all on
// their way at once. Prints a Markdown table, by itself of ranks that are threads, under mpirun of processes.
//
//   build/benchmarks/bin/rpc_benchmark
//   mpirun -np 2 build/benchmarks/bin/rpc_benchmark
//
// A call sends a tensor float32 [n] to a function that returns it, and gets it back. The raw round trip sends the same
// bytes with nothing else: between processes by MPI_Send and MPI_Recv, between threads by the communicator.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "parallel/launch/launch_environment.h"
#include "parallel/rpc/master.h"
#ifdef STAGECOACH_HAS_MPI
#include <mpi.h>
#endif

namespace stagecoach {
namespace {

constexpr int kCalls = 1000;
constexpr int kRounds = 5;
constexpr std::int64_t kSizes[] = {1, 1024, 65536};  // elements

/// Returns the microseconds of one of kCalls calls: the median of kRounds rounds, after one that does not count.
double microseconds(const std::function<void()>& thousand_calls) {
  std::vector<double> rounds;
  for (int round = 0; round <= kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    thousand_calls();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    rounds.push_back(took.count() / kCalls);
  }
  std::sort(rounds.begin() + 1, rounds.end());
  return rounds[1 + kRounds / 2];
}

/// kCalls round trips of a tensor. All ranks call it; those from 2 on do nothing.
void round_trips_of_threads(Rank& rank, std::int64_t elements) {
  Tensor values = Tensor::zeros({elements}, DType::float32, rank.device);
  for (int i = 0; i < kCalls && rank.index < 2; ++i) {
    if (rank.index == 0) {
      rank.comm.send(values, 1, 0);
    }
    values = rank.comm.receive({elements}, DType::float32, 1 - rank.index, 0);
    if (rank.index == 1) {
      rank.comm.send(values, 0, 0);
    }
  }
}

/// kCalls round trips of MPI itself, likewise.
void round_trips_of_processes([[maybe_unused]] int rank, [[maybe_unused]] std::int64_t elements) {
#ifdef STAGECOACH_HAS_MPI
  std::vector<float> values(static_cast<std::size_t>(elements));
  const int count = static_cast<int>(elements);
  for (int i = 0; i < kCalls && rank < 2; ++i) {
    if (rank == 0) {
      MPI_Send(values.data(), count, MPI_FLOAT, 1, 0, MPI_COMM_WORLD);
    }
    MPI_Recv(values.data(), count, MPI_FLOAT, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1) {
      MPI_Send(values.data(), count, MPI_FLOAT, 0, 0, MPI_COMM_WORLD);
    }
  }
#endif
}

/// Returns the microseconds of a raw round trip per size, as rank 0 measures them.
std::vector<double> measure_raw(const World& world) {
  std::vector<double> raw;
  launch(world, [&](Rank& rank) {
    for (const std::int64_t elements : kSizes) {
      const double took = microseconds([&] {
        world.transport == Transport::mpi ? round_trips_of_processes(rank.index, elements)
                                          : round_trips_of_threads(rank, elements);
      });
      if (rank.index == 0) {
        raw.push_back(took);
      }
    }
  });
  return raw;
}

void run() {
  const bool processes = launch_environment().has_value();
  const World world{.ranks = processes ? launch_environment()->size : 2,
                    .transport = processes ? Transport::mpi : Transport::thread};
  const std::vector<double> raw = measure_raw(world);
  RemoteTable table;
  table.add_function("echo", [](const Tensor& x) { return x; });
  run_with_master(world, table, [&](Master& master) {
    fmt::print(
        "| elements | {} round trip, us | call, us | more, us | 1,000 at once, calls/s |\n|---|---|---|---|---|\n",
        processes ? "MPI" : "communicator");
    for (std::size_t i = 0; i < std::size(kSizes); ++i) {
      const Tensor x = Tensor::zeros({kSizes[i]});
      const double one = microseconds([&] {
        for (int call = 0; call < kCalls; ++call) {
          static_cast<void>(master.rpc_sync(1, "echo", x));
        }
      });
      const double each = microseconds([&] {
        std::vector<Future> futures;
        for (int call = 0; call < kCalls; ++call) {
          futures.push_back(master.rpc_async(1, "echo", x));
        }
        for (Future& future : futures) {
          static_cast<void>(future.wait());
        }
      });
      fmt::print("| {} | {:.1f} | {:.1f} | {:+.1f} | {:.0f} |\n", kSizes[i], raw[i], one, one - raw[i], 1e6 / each);
      std::fflush(stdout);
    }
  });
}

}  // namespace
}  // namespace stagecoach

int main() {
  try {
    stagecoach::run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "rpc_benchmark: {}\n", error.what());
    return 1;
  }
}
