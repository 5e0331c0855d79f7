#pragma once
/// @file
/// Times work on a GPU stream by events. Many runs are recorded as one CUDA graph, as training does it: a small kernel
/// takes less time than the CPU needs to ask for it, and the asking is not what is measured here.

#include <cuda_runtime.h>

#include <functional>

namespace stagecoach {

using Work = std::function<void()>;

/// How to record and time work on one stream: ours, or that of the libraries that ours is compared with.
struct Stopwatch {
  /// Records `work` without running it, and returns what runs the recording.
  std::function<Work(const Work& work)> record;
  /// Seconds that `work` took on the device. Returns when it is done.
  std::function<double(const Work& work)> seconds;
};

/// Seconds that `work` takes on `stream`, by events. Returns when it is done.
double seconds_on(cudaStream_t stream, const Work& work);

/// Seconds of one run of `body` among many that follow one another: the median of several recordings' worth.
double median_seconds(const Stopwatch& stopwatch, const Work& body);

}  // namespace stagecoach
