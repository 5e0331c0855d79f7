// How long check and simulate take for a large cluster: 512 ranks x 4,096 micro-batches, 4.2 million actions.

#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include "parallel/schedule/check.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/schedule_kinds.h"
#include "parallel/schedule/simulate.h"

namespace stagecoach {
namespace {

constexpr int kRanks = 512;
constexpr int kMicrobatches = 4096;

void report(benchmark::State& state, const Schedule& schedule) {
  std::int64_t actions = 0;
  for (const auto& rank : schedule.ranks) {
    actions += static_cast<std::int64_t>(rank.size());
  }
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  state.counters["actions"] = static_cast<double>(actions);
  state.counters["peak_MB"] = static_cast<double>(usage.ru_maxrss) / 1024;
}

void generate(benchmark::State& state) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(make_schedule("1f1b", kRanks, kMicrobatches));
  }
}

void lower_large(benchmark::State& state) {
  const Schedule schedule = make_schedule("1f1b", kRanks, kMicrobatches);
  for (auto _ : state) {
    benchmark::DoNotOptimize(lower(schedule));
  }
}

void check_large(benchmark::State& state) {
  const Schedule schedule = lower(make_schedule("1f1b", kRanks, kMicrobatches));
  for (auto _ : state) {
    benchmark::DoNotOptimize(check(schedule));
  }
  report(state, schedule);
}

void simulate_large(benchmark::State& state) {
  const Schedule schedule = lower(make_schedule("1f1b", kRanks, kMicrobatches));
  const Costs costs = Costs::uniform(schedule.stage_count(), 1, 1, 1);
  for (auto _ : state) {
    benchmark::DoNotOptimize(simulate(schedule, costs));
  }
  report(state, schedule);
}

BENCHMARK(generate)->Unit(benchmark::kMillisecond);
BENCHMARK(lower_large)->Unit(benchmark::kMillisecond);
BENCHMARK(check_large)->Unit(benchmark::kMillisecond);
BENCHMARK(simulate_large)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace stagecoach

BENCHMARK_MAIN();
