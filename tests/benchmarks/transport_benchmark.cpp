// How long a message and an all-reduce take between ranks, by the transport that runs this: threads by itself, MPI
// under mpirun, and then also what MPI itself takes for the same. Prints a Markdown table.
//
//   build/benchmarks/bin/transport_benchmark [RANKS]
//   mpirun -np 2 build/benchmarks/bin/transport_benchmark
//
// A message goes there and back: a row has half of that. Between threads a message hands its memory over, so that its
// time does not grow with its bytes. Ours and MPI's own are measured in turn; the table has medians.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "parallel/launch/launch.h"
#include "parallel/launch/launch_environment.h"
#ifdef STAGECOACH_HAS_MPI
#include <mpi.h>
#endif

namespace stagecoach {
namespace {

constexpr int kRounds = 15;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// So many that they take some milliseconds.
int repetitions(std::int64_t bytes) { return static_cast<int>(std::clamp<std::int64_t>((32 << 20) / bytes, 2, 2000)); }

/// Microseconds of one of `count` runs of `body`.
double microseconds(int count, const std::function<void()>& body) {
  const double start = seconds_now();
  for (int i = 0; i < count; ++i) {
    body();
  }
  return 1e6 * (seconds_now() - start) / count;
}

#ifdef STAGECOACH_HAS_MPI
MPI_Comm raw_comm() {
  static const MPI_Comm comm = [] {
    MPI_Comm copy = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    return copy;
  }();
  return comm;
}

/// As in ping_pong below: rank 1 sends what it has received, and rank 0 keeps what it sends.
void raw_ping_pong(int rank, const void* out, void* in, int bytes) {
  if (rank == 0) {
    MPI_Send(out, bytes, MPI_BYTE, 1, 0, raw_comm());
    MPI_Recv(in, bytes, MPI_BYTE, 1, 0, raw_comm(), MPI_STATUS_IGNORE);
  } else if (rank == 1) {
    MPI_Recv(in, bytes, MPI_BYTE, 0, 0, raw_comm(), MPI_STATUS_IGNORE);
    MPI_Send(in, bytes, MPI_BYTE, 0, 0, raw_comm());
  }
}

void raw_all_reduce(float* data, int count) {
  MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, raw_comm());
}
#else
void raw_ping_pong(int, const void*, void*, int) {}
void raw_all_reduce(float*, int) {}
#endif

void ping_pong(Rank& rank, const Tensor& tensor) {
  if (rank.index == 0) {
    rank.comm.send(tensor, 1, 0);
    rank.comm.receive(tensor.shape(), tensor.dtype(), 1, 0);
  } else if (rank.index == 1) {
    rank.comm.send(rank.comm.receive(tensor.shape(), tensor.dtype(), 0, 0), 0, 0);
  }
}

struct Row {
  std::vector<double> send, raw_send, reduce, raw_reduce;
};

Row measure(Rank& rank, std::int64_t bytes, bool with_raw) {
  Tensor tensor = Tensor::zeros({bytes / 4}, DType::float32, rank.device);
  Tensor raw = tensor.clone();  // memory of the same kind
  const int count = repetitions(bytes);
  Row row;
  const auto enter = [&](std::vector<double>& into, double parts, const std::function<void()>& body) {
    rank.comm.barrier();
    into.push_back(microseconds(count, body) / parts);
  };
  for (int round = 0; round < kRounds + 1; ++round) {
    enter(row.send, 2, [&] { ping_pong(rank, tensor); });
    enter(row.reduce, 1, [&] { rank.comm.all_reduce(tensor); });
    if (with_raw) {
      enter(row.raw_send, 2,
            [&] { raw_ping_pong(rank.index, tensor.raw_data(), raw.raw_mutable_data(), static_cast<int>(bytes)); });
      enter(row.raw_reduce, 1, [&] { raw_all_reduce(raw.mutable_data<float>(), static_cast<int>(bytes / 4)); });
    }
    if (round == 0) {
      row = {};
    }
  }
  return row;
}

std::string size_of(std::int64_t bytes) {
  return bytes < 1024        ? fmt::format("{} B", bytes)
         : bytes < (1 << 20) ? fmt::format("{} KiB", bytes >> 10)
                             : fmt::format("{} MiB", bytes >> 20);
}

void print(std::int64_t bytes, const Row& row, bool with_raw) {
  const double send = median(row.send);
  const double reduce = median(row.reduce);
  const auto rate = [&](double microseconds) { return static_cast<double>(bytes) / microseconds / 1e3; };
  fmt::print("| {} | {:.2f} | {:.2f} | {:.2f} | {:.2f} |", size_of(bytes), send, rate(send), reduce, rate(reduce));
  if (with_raw) {
    const double raw_send = median(row.raw_send);
    const double raw_reduce = median(row.raw_reduce);
    fmt::print(" {:.2f} | {:+.2f} ({:.2f}) | {:.2f} | {:+.2f} ({:.2f}) |", raw_send, send - raw_send, send / raw_send,
               raw_reduce, reduce - raw_reduce, reduce / raw_reduce);
  }
  fmt::print("\n");
  std::fflush(stdout);
}

void run(int ranks) {
  const bool processes = launch_environment().has_value();
  const World world{.ranks = processes ? launch_environment()->size : ranks,
                    .transport = processes ? Transport::mpi : Transport::thread};
  launch(world, [&](Rank& rank) {
    if (rank.index == 0) {
      fmt::print("{} ranks, {}\n\n| size | send, us | GB/s | all-reduce, us | GB/s |", rank.world,
                 processes ? "processes, MPI" : "threads");
      fmt::print(
          "{}\n|---|---:|---:|---:|---:|{}\n",
          processes
              ? " MPI's send, us | ours minus MPI's, us (ratio) | MPI's all-reduce, us | ours minus MPI's, us (ratio) |"
              : "",
          processes ? "---:|---:|---:|---:|" : "");
    }
    measure(rank, 4, processes);  // to warm up
    for (std::int64_t bytes = 4; bytes <= (64 << 20); bytes *= 4) {
      const Row row = measure(rank, bytes, processes);
      if (rank.index == 0) {
        print(bytes, row, processes);
      }
    }
  });
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) {
  try {
    stagecoach::run(argc > 1 ? std::atoi(argv[1]) : 2);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "transport_benchmark: {}\n", error.what());
    return 1;
  }
}
