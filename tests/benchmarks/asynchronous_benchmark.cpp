/// @file
/// What the host pays for a call on an asynchronous CPU device: the time until an operation on small tensors returns,
/// beside the time of the same operation on a synchronous device.

#include <benchmark/benchmark.h>

#include <optional>
#include <vector>

#include "core/asynchronous.h"
#include "core/autograd/grad_mode.h"
#include "core/kernels/kernels.h"
#include "core/ops.h"

namespace stagecoach {
namespace {

const Device kDevice{DeviceType::cpu, 1};
constexpr int kCalls = 1000;  // in the queue at once, which has room for more

/// The kernel alone: one enqueued call with three tensors.
void enqueue_add(benchmark::State& state) {
  const AsynchronousDevices devices({kDevice});
  const Tensor a = Tensor::full({64}, 1, DType::float32, kDevice);
  Tensor out = Tensor::full({64}, 0, DType::float32, kDevice);
  for (auto _ : state) {
    for (int i = 0; i < kCalls; ++i) {
      kernels(kDevice).add(a, a, out);
    }
    state.PauseTiming();
    synchronize({kDevice, Stream::kCompute});
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations() * kCalls);
}
BENCHMARK(enqueue_add);

/// A whole operation: its checks, its output's memory, and the call.
void operation(benchmark::State& state, bool is_asynchronous) {
  const NoGrad no_grad;
  std::optional<AsynchronousDevices> devices;
  if (is_asynchronous) {
    devices.emplace(std::vector<Device>{kDevice});
  }
  const Tensor a = Tensor::full({64}, 1, DType::float32, kDevice);
  for (auto _ : state) {
    for (int i = 0; i < kCalls; ++i) {
      benchmark::DoNotOptimize(add(a, a));
    }
    state.PauseTiming();
    synchronize({kDevice, Stream::kCompute});
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations() * kCalls);
}
BENCHMARK_CAPTURE(operation, asynchronous, true);
BENCHMARK_CAPTURE(operation, synchronous, false);

}  // namespace
}  // namespace stagecoach

BENCHMARK_MAIN();
