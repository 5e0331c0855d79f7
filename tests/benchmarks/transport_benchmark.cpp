// How long a message and an all-reduce take between ranks, by the transport that runs this: threads by itself, MPI
// under mpirun, Gloo under torchrun, and then also what MPI or Gloo itself takes for the same. Prints a Markdown table.
//
//   build/benchmarks/bin/transport_benchmark [RANKS]
//   mpirun -np 2 build/benchmarks/bin/transport_benchmark
//   scripts/start_ranks.sh 2 build/benchmarks/bin/transport_benchmark
//
// A message goes there and back: a row has half of that. Between threads a message hands its memory over, so that its
// time does not grow with its bytes. Ours and the library's own are measured in turn; the table has medians.

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
#ifdef STAGECOACH_HAS_GLOO
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>
#include <unistd.h>
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

/// What a library itself takes.
struct Raw {
  std::function<void(int rank, const void* out, void* in, int bytes)> ping_pong;
  std::function<void(float* data, int count)> all_reduce;
};

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
void mpi_ping_pong(int rank, const void* out, void* in, int bytes) {
  if (rank == 0) {
    MPI_Send(out, bytes, MPI_BYTE, 1, 0, raw_comm());
    MPI_Recv(in, bytes, MPI_BYTE, 1, 0, raw_comm(), MPI_STATUS_IGNORE);
  } else if (rank == 1) {
    MPI_Recv(in, bytes, MPI_BYTE, 0, 0, raw_comm(), MPI_STATUS_IGNORE);
    MPI_Send(in, bytes, MPI_BYTE, 0, 0, raw_comm());
  }
}

Raw raw_mpi() {
  return {mpi_ping_pong,
          [](float* data, int count) { MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, raw_comm()); }};
}
#else
Raw raw_mpi() { return {}; }
#endif

#ifdef STAGECOACH_HAS_GLOO
/// Gloo with connections of its own, as it connects ranks by itself.
Raw raw_gloo(const LaunchEnvironment& process) {
  const auto context = std::make_shared<gloo::rendezvous::Context>(process.rank, process.size);
  auto device = gloo::transport::tcp::CreateDevice("127.0.0.1");
  gloo::rendezvous::FileStore store("/tmp");
  // The ranks have one parent, scripts/start_ranks.sh.
  gloo::rendezvous::PrefixStore unique(fmt::format("transport_benchmark_{}", ::getppid()), store);
  context->connectFullMesh(unique, device);
  const auto ping_pong = [context](int rank, const void* out, void* in, int bytes) {
    const auto size = static_cast<std::size_t>(bytes);
    const auto sent = context->createUnboundBuffer(rank == 0 ? const_cast<void*>(out) : in, size);  // only read
    const auto received = context->createUnboundBuffer(in, size);
    if (rank == 0) {
      sent->send(1, 0);
      received->recv(1, 0);
      sent->waitSend();
      received->waitRecv();
    } else if (rank == 1) {
      received->recv(0, 0);
      received->waitRecv();
      sent->send(0, 0);
      sent->waitSend();
    }
  };
  const auto all_reduce = [context](float* data, int count) {
    gloo::AllreduceOptions options(context);
    options.setOutput(data, static_cast<std::size_t>(count));
    options.setReduceFunction(
        [](void* sum, const void* a, const void* b, std::size_t n) { gloo::sum<float>(sum, a, b, n); });
    gloo::allreduce(options);
  };
  return {ping_pong, all_reduce};
}
#else
Raw raw_gloo(const LaunchEnvironment&) { return {}; }
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

Row measure(Rank& rank, std::int64_t bytes, const Raw& library) {
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
    if (library.ping_pong) {
      enter(row.raw_send, 2,
            [&] { library.ping_pong(rank.index, tensor.raw_data(), raw.raw_mutable_data(), static_cast<int>(bytes)); });
      enter(row.raw_reduce, 1, [&] { library.all_reduce(raw.mutable_data<float>(), static_cast<int>(bytes / 4)); });
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
  const bool by_gloo = processes && launch_environment()->by == "torchrun";
  const World world{.ranks = processes ? launch_environment()->size : ranks,
                    .transport = by_gloo     ? Transport::gloo
                                 : processes ? Transport::mpi
                                             : Transport::thread};
  const std::string name = by_gloo ? "Gloo" : "MPI";
  launch(world, [&](Rank& rank) {
    const Raw library = by_gloo ? raw_gloo(*launch_environment()) : processes ? raw_mpi() : Raw{};
    const bool with_raw = library.ping_pong != nullptr;
    if (rank.index == 0) {
      fmt::print("{} ranks, {}\n\n| size | send, us | GB/s | all-reduce, us | GB/s |", rank.world,
                 processes ? "processes, " + name : "threads");
      const std::string more = fmt::format(
          " {0}'s send, us | ours minus {0}'s, us (ratio) | {0}'s all-reduce, us | ours minus {0}'s, us (ratio) |",
          name);
      fmt::print("{}\n|---|---:|---:|---:|---:|{}\n", with_raw ? more : "", with_raw ? "---:|---:|---:|---:|" : "");
    }
    measure(rank, 4, library);  // to warm up
    for (std::int64_t bytes = 4; bytes <= (64 << 20); bytes *= 4) {
      const Row row = measure(rank, bytes, library);
      if (rank.index == 0) {
        print(bytes, row, with_raw);
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
