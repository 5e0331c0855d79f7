// What a receive that is posted before a computation gains over one that is posted after it. Rank 0 sends a message,
// and both ranks compute; the table has how long rank 1 needs until it has done both. Prints Markdown.
//
//   LINK=0.001,125e6 scripts/two_machines.sh 2 build/benchmarks/bin/receive_ahead_benchmark 0.001,125e6
//   build/benchmarks/bin/receive_ahead_benchmark LINK      (two threads, by the virtual clock)
//
// The second gives what a link of that kind ought to take.

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "parallel/launch/launch.h"
#include "parallel/launch/launch_environment.h"

namespace stagecoach {
namespace {

constexpr double kCompute = 0.1;  // seconds
constexpr int kRounds = 11;       // and one to warm up
const Shape kMessage{2 << 20};    // 8 MiB

/// Computes until this rank's clock has advanced by `seconds`.
void compute(Rank& rank, double seconds) {
  for (const double end = rank.comm.clock().now() + seconds; rank.comm.clock().now() < end;) {
  }
}

/// Seconds until this rank has done its part.
double seconds_of_round(Rank& rank, bool ahead) {
  rank.comm.barrier();
  const double start = rank.comm.clock().now();
  if (rank.index == 0) {
    const PendingSend sent = rank.comm.send_async(Tensor::zeros(kMessage, DType::float32, rank.device), 1, 0);
    compute(rank, kCompute);
    sent.wait();
    return rank.comm.clock().now() - start;
  }
  const auto post = [&] { return rank.comm.receive_async(kMessage, DType::float32, 0, 0); };
  if (ahead) {
    const PendingReceive receive = post();
    compute(rank, kCompute);
    static_cast<void>(receive.wait());
  } else {
    compute(rank, kCompute);
    static_cast<void>(post().wait());
  }
  return rank.comm.clock().now() - start;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void run(const Link& link) {
  World world{.ranks = 2, .clock = ClockKind::virtual_time, .network = link};
  if (launch_environment().has_value()) {
    world = {.ranks = 2, .transport = Transport::mpi};
  }
  const double transfer = link.seconds(static_cast<double>(kMessage.numel()) * sizeof(float));
  launch(world, [&](Rank& rank) {
    std::vector<double> ahead;
    std::vector<double> at_use;
    for (int round = 0; round < kRounds + 1; ++round) {
      ahead.push_back(seconds_of_round(rank, true));
      at_use.push_back(seconds_of_round(rank, false));
    }
    if (rank.index == 1) {
      ahead.erase(ahead.begin());
      at_use.erase(at_use.begin());
      fmt::print("| receive posted | by the link, ms | {}, ms |\n|---|---:|---:|\n",
                 launch_environment() ? "wall clock, MPI" : "virtual clock, threads");
      fmt::print("| before the computation | {:.1f} | {:.1f} |\n", 1e3 * std::max(kCompute, transfer),
                 1e3 * median(ahead));
      fmt::print("| after it | {:.1f} | {:.1f} |\n", 1e3 * (kCompute + transfer), 1e3 * median(at_use));
    }
  });
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) {
  try {
    stagecoach::run(stagecoach::link_from_text(argc > 1 ? argv[1] : "0.001,125e6"));
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "receive_ahead_benchmark: {}\n", error.what());
    return 1;
  }
}
