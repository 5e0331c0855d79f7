#include "tests/benchmarks/cuda_kernel_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "core/cuda_backend.h"

namespace stagecoach {
namespace {

/// What the GPU can do, as measured: operations and bytes per second, and the seconds of a kernel that does nothing.
struct Rates {
  double fp32 = 0;
  double tf32 = 0;
  double memory = 0;
  double cache = 0;  // of tensors that fit the second-level cache
  double start = 0;
};
Rates rates;
GpuFacts facts;
Precision precision = Precision::fp32;
bool failed = false;

void use(Precision wanted) {
  precision = wanted;
  cuda::allow_tf32(wanted == Precision::tf32);
}

/// The best of cuBLAS and our own product on large squares.
double measure_product_rate(Precision wanted) {
  use(wanted);
  double best = 0;
  for (const std::int64_t n : {4096, 8192}) {
    const Tensor x = random_tensor({n, n});
    const Tensor weight = random_tensor({n, n});
    Tensor y = random_tensor({n, n});
    const auto operations = static_cast<double>(kernel_costs().linear(x, weight, {}, y).flops);
    best = std::max(best, operations / our_seconds([&] { gpu().linear(x, weight, {}, y); }));
    if (const auto seconds = cublas_linear_seconds(Pass::forward, wanted, x, weight, y)) {
      best = std::max(best, operations / *seconds);
    }
  }
  return best;
}

/// The best of a copy and a product with a number: each reads and writes `bytes` in all.
double measure_copy_rate(std::int64_t bytes) {
  const Tensor x = random_tensor({bytes / 8});
  Tensor y = random_tensor({bytes / 8});
  const double seconds = std::min(our_seconds([&] { gpu().copy(x, y); }), our_seconds([&] { gpu().scale(x, 0.5, y); }));
  return static_cast<double>(bytes) / seconds;
}

void measure_rates() {
  facts = gpu_facts();
  rates.fp32 = measure_product_rate(Precision::fp32);
  rates.tf32 = measure_product_rate(Precision::tf32);
  rates.memory = measure_copy_rate(std::int64_t{1} << 30);
  rates.cache = std::max(rates.memory, measure_copy_rate(facts.cache_bytes / 4));
  Tensor one = random_tensor({1});
  rates.start = our_seconds([&] { gpu().fill(0, one); });
}

struct Floor {
  double seconds = 0;
  const char* bound = "";
};

Floor floor_of(const KernelCost& cost) {
  const auto bytes = static_cast<double>(cost.bytes());
  // Half the cache: as much again may still lie there from before.
  const bool in_cache = bytes <= static_cast<double>(facts.cache_bytes) / 2;
  const double operations = is_product(cost.kind) ? static_cast<double>(cost.flops) : 0;
  const Floor arithmetic{operations / (precision == Precision::tf32 ? rates.tf32 : rates.fp32), "arithmetic"};
  const Floor memory{bytes / (in_cache ? rates.cache : rates.memory), in_cache ? "cache" : "memory"};
  const Floor start{rates.start, "start"};
  return std::max({arithmetic, memory, start}, [](const Floor& a, const Floor& b) { return a.seconds < b.seconds; });
}

}  // namespace

void print_row(const std::string& name, const Work& body, const KernelCost& cost, const Peer& peer) {
  try {
    const double seconds = our_seconds(body);
    const std::optional<double> peer_seconds = peer();
    const Floor floor = floor_of(cost);
    fmt::print("| {} | {:.1f} | {:.1f} | {:.0f}% | {} | {} | {:.0f} | {} | {} |\n", name, 1e6 * seconds,
               1e6 * floor.seconds, 100 * floor.seconds / seconds, floor.bound,
               is_product(cost.kind) ? fmt::format("{:.0f}", 1e-9 * static_cast<double>(cost.flops) / seconds) : "",
               1e-9 * static_cast<double>(cost.bytes()) / seconds,
               peer_seconds ? fmt::format("{:.1f}", 1e6 * *peer_seconds) : "",
               peer_seconds ? fmt::format("{:.2f}", *peer_seconds / seconds) : "");
  } catch (const std::exception& error) {
    failed = true;
    fmt::print("| {} | failed: {} | | | | | | | |\n", name, error.what());
  }
  std::fflush(stdout);
}

void begin_table(const std::string& title, Precision wanted) {
  use(wanted);
  fmt::print("\n### {}, {}\n\n", title, wanted == Precision::tf32 ? "TF32" : "float32");
  fmt::print("| operation | µs | floor µs | of the floor | bound by | GFLOP/s | GB/s | peer µs | peer / ours |\n");
  fmt::print("|---|---:|---:|---:|---|---:|---:|---:|---:|\n");
}

Precision precision_of_table() { return precision; }

void print_machine() {
  measure_rates();
  fmt::print("{}; {} multiprocessors, at most {:.0f} MHz, {} MiB of second-level cache. Peers: {}.\n\n",
             cuda::description(kGpu), facts.multiprocessors, 1e-6 * facts.clock_hz, facts.cache_bytes >> 20,
             peers_description());
  fmt::print("| measured first | |\n|---|---:|\n");
  fmt::print("| best float32 product (cuBLAS or ours, 4096 or 8192 square) | {:.1f} TFLOP/s |\n", 1e-12 * rates.fp32);
  fmt::print("| best TF32 product (the same) | {:.1f} TFLOP/s |\n", 1e-12 * rates.tf32);
  fmt::print("| float32 by number of cores and highest clock | {:.1f} TFLOP/s |\n", 1e-12 * facts.fp32_rate);
  fmt::print("| best copy, 1 GiB read and written | {:.0f} GB/s |\n", 1e-9 * rates.memory);
  fmt::print("| best copy within the second-level cache | {:.0f} GB/s |\n", 1e-9 * rates.cache);
  fmt::print("| a kernel that does nothing, in a graph | {:.2f} µs |\n\n", 1e6 * rates.start);
  fmt::print(
      "Each operation runs many times in a row on the same tensors, recorded as a CUDA graph; medians of 7. The floor "
      "is the\nlargest of: operations at the product's rate, bytes at the copy's rate (the cache's, where the tensors "
      "fit half of it),\nand a kernel that does nothing. Peers are cuBLAS and the fastest algorithm of cuDNN on NCHW, "
      "without bias; a ratio above 1 means\nthat ours is faster.\n");
}

bool any_failed() { return failed; }
void note_failure() { failed = true; }

}  // namespace stagecoach
