// How long the best partition takes to find for a large model on many ranks: 200 layers x 64 ranks.

#include <benchmark/benchmark.h>

#include "core/random.h"
#include "parallel/pipeline/partition.h"

namespace stagecoach {
namespace {

constexpr std::uint64_t kLayers = 200;
constexpr int kRanks = 64;

/// Layers of up to 10 ms, messages of up to 10 MB, and weights of up to 100 MB.
std::vector<LayerCost> random_layers() {
  const Philox random(1, "layers");
  std::vector<LayerCost> layers;
  for (std::uint64_t i = 0; i < kLayers; ++i) {
    layers.push_back({1e-2 * random.uniform(3 * i), 1e7 * random.uniform(3 * i + 1), 1e8 * random.uniform(3 * i + 2)});
  }
  return layers;
}

void partition_large(benchmark::State& state) {
  const std::vector<LayerCost> layers = random_layers();
  const Link link = link_from_text("ethernet100");
  Partition best;
  for (auto _ : state) {
    best = partition(layers, kRanks, link);
    benchmark::DoNotOptimize(best);
  }
  state.counters["stages"] = static_cast<double>(best.split.size());
}

BENCHMARK(partition_large)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace stagecoach

BENCHMARK_MAIN();
