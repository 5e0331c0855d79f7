#include "tests/benchmarks/cuda_timing.h"

#include <algorithm>
#include <array>

#include "core/cuda/handles.h"

namespace stagecoach {
namespace {

constexpr double kSpan = 2e-3;     // seconds of a recording: the clock of the events ticks in half microseconds
constexpr int kMostRepeats = 200;  // larger graphs take long to make

}  // namespace

double seconds_on(cudaStream_t stream, const Work& work) {
  static const auto events = [] {
    std::array<cudaEvent_t, 2> made{};
    for (cudaEvent_t& event : made) {
      STAGECOACH_CUDA(cudaEventCreate(&event));
    }
    return made;
  }();
  STAGECOACH_CUDA(cudaEventRecord(events[0], stream));
  work();
  STAGECOACH_CUDA(cudaEventRecord(events[1], stream));
  STAGECOACH_CUDA(cudaEventSynchronize(events[1]));
  float milliseconds = 0;
  STAGECOACH_CUDA(cudaEventElapsedTime(&milliseconds, events[0], events[1]));
  return milliseconds * 1e-3;
}

double median_seconds(const Stopwatch& stopwatch, const Work& body) {
  stopwatch.seconds(body);  // the first run of a kernel loads it
  const double once = std::min(stopwatch.seconds(body), stopwatch.seconds(body));
  const int repeats = static_cast<int>(std::clamp(kSpan / std::max(once, 1e-9), 1.0, double{kMostRepeats}));
  const Work launch = stopwatch.record([&] {
    for (int i = 0; i < repeats; ++i) {
      body();
    }
  });
  launch();  // the first launch brings the graph to the device
  std::array<double, 7> seconds{};
  for (double& time : seconds) {
    time = stopwatch.seconds(launch) / repeats;
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace stagecoach
