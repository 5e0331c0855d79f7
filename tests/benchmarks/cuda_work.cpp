#include "tests/benchmarks/cuda_work.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "core/base/error.h"
#include "core/cuda/queues.h"
#include "core/cuda_backend.h"
#include "core/random.h"

namespace stagecoach {

Tensor random_tensor(const Shape& shape) {
  static const std::vector<float> some = [] {
    std::vector<float> numbers(std::size_t{1} << 20);
    const Philox random(0, "benchmark");
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = static_cast<float>(random.uniform(i)) - 0.5F;
    }
    return numbers;
  }();
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t start = 0; start < values.size(); start += some.size()) {
    std::copy_n(some.begin(), std::min(some.size(), values.size() - start), values.begin() + start);
  }
  return Tensor::from(values, shape, kGpu);
}

Stopwatch our_stopwatch() {
  return {.record = [](const Work& work) -> Work {
            const std::shared_ptr<cuda::Graph> graph = cuda::record_graph(kGpu, work);
            return [graph] { graph->launch(); };
          },
          .seconds = [](const Work& work) { return seconds_on(cuda::compute_stream(kGpu), work); }};
}

double our_seconds(const Work& body) { return median_seconds(our_stopwatch(), body); }

int run_on_gpu(const char* program, const Work& body) {
  try {
    require_device(kGpu);
    if (cuda::is_emulated()) {
      fmt::print(stderr, "{}: this build emulates the GPU on the CPU; its times say nothing\n", program);
      return 2;
    }
    body();
  } catch (const UsageError& error) {
    fmt::print(stderr, "{}: {}\n", program, error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", program, error.what());
    return 1;
  }
  return 0;
}

}  // namespace stagecoach
