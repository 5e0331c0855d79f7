// What the executor itself costs: a pipeline on one rank, of stages that do next to nothing, beside the same calls of
// the stages by hand. The difference, over the actions, is what looking up, timing and handing over take.

#include <benchmark/benchmark.h>

#include <map>
#include <memory>
#include <vector>

#include "nn/layers.h"
#include "parallel/launch/launch.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/schedule_kinds.h"

namespace stagecoach {
namespace {

constexpr int kStages = 2;
constexpr int kMicrobatches = 64;

std::map<int, Stage> tiny_stages() {
  std::map<int, Stage> stages;
  for (int s = 0; s < kStages; ++s) {
    auto layers = std::make_shared<Sequential>();
    layers->add("fc" + std::to_string(s), std::make_shared<Linear>(2, 2));
    layers->materialize(1);
    stages.emplace(s, Stage(layers));
  }
  return stages;
}

const Tensor& input() {
  static const Tensor x = Tensor::zeros({1, 2});
  return x;
}
const Tensor& label() {
  static const Tensor y = Tensor::zeros({1}, DType::int32);
  return y;
}

void stages_by_hand(benchmark::State& state) {
  auto stages = tiny_stages();
  const Tensor share = Tensor::full({}, 1.0 / kMicrobatches);
  std::vector<Tensor> between(kMicrobatches);
  for (auto _ : state) {
    for (int i = 0; i < kMicrobatches; ++i) {
      between[static_cast<std::size_t>(i)] = stages.at(0).forward(i, input(), false);
    }
    Tensor logits;
    for (int i = 0; i < kMicrobatches; ++i) {
      stages.at(1).forward_with_loss(i, between[static_cast<std::size_t>(i)], label(), true, &logits);
    }
    for (int i = 0; i < kMicrobatches; ++i) {
      between[static_cast<std::size_t>(i)] = stages.at(1).backward(i, share);
    }
    for (int i = 0; i < kMicrobatches; ++i) {
      stages.at(0).backward(i, between[static_cast<std::size_t>(i)]);
    }
  }
  state.SetItemsProcessed(state.iterations() * kMicrobatches * kStages * 2);
}

void stages_in_a_pipeline(benchmark::State& state) {
  const auto comm = self_communicator(Device{});
  const Schedule schedule = lower(make_schedule("foldx_aiao", 1, kMicrobatches, kStages));
  Pipeline pipeline(tiny_stages(), {{1, 2}, {1, 2}}, schedule, *comm);
  const StepData data{[](int) { return input(); }, [](int) { return label(); },
                      std::vector<std::int64_t>(kMicrobatches, 1)};
  for (auto _ : state) {
    pipeline.run(schedule, data);
  }
  state.SetItemsProcessed(state.iterations() * kMicrobatches * kStages * 2);
}

// Items are actions. The cost of the executor: the difference of the two times an action.
BENCHMARK(stages_by_hand)->Repetitions(5)->ReportAggregatesOnly();
BENCHMARK(stages_in_a_pipeline)->Repetitions(5)->ReportAggregatesOnly();

}  // namespace
}  // namespace stagecoach

BENCHMARK_MAIN();
