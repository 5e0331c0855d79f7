#include "tests/emulation/stream.h"

#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "tests/emulation/machine.h"

using Jobs = std::vector<std::function<void()>>;

struct EmulatedStream {
  std::optional<Jobs> recorded;  // while it is
  bool spoiled = false;          // by a call that a recording forbids
};
struct EmulatedEvent {
  bool recorded = false;  // in a stream that was
};
struct EmulatedGraph {
  Jobs jobs;
};
struct EmulatedGraphExec {
  Jobs jobs;
};

namespace stagecoach::cuda::emulation {
namespace {

thread_local int recordings = 0;  // that this thread has begun and not ended
thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;

bool is_recorded(cudaStream_t stream) { return stream != nullptr && stream->recorded; }

}  // namespace

void give(cudaStream_t stream, std::function<void()> work) {
  ++pieces_of_work();
  if (is_recorded(stream)) {
    stream->recorded->push_back(std::move(work));
  } else {
    work();
  }
}

cudaError_t unless_recording() {
  return recordings > 0 && mode != cudaStreamCaptureModeRelaxed ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

}  // namespace stagecoach::cuda::emulation

using namespace stagecoach::cuda::emulation;

/// Stricter than a GPU, which copies what overlaps in no certain order.
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  const auto* source = static_cast<const char*>(from);
  const auto* target = static_cast<const char*>(to);
  const std::less<> before;
  if (before(source, target + bytes) && before(target, source + bytes)) {
    return cudaErrorInvalidValue;
  }
  give(stream, [=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  give(stream, [=] { std::memset(memory, value, bytes); });
  return cudaSuccess;
}

// ---- Streams and events

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new EmulatedStream;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (is_recorded(stream)) {
    stream->spoiled = true;
    return cudaErrorStreamCaptureUnsupported;
  }
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  ++stream_waits();
  // Recordings of several streams are not emulated.
  return is_recorded(stream) == event->recorded ? cudaSuccess : cudaErrorStreamCaptureIsolation;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new EmulatedEvent;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->recorded = is_recorded(stream);
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return event->recorded ? cudaErrorCapturedEvent : cudaSuccess; }

// ---- Recordings

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* other) {
  std::swap(*other, mode);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (is_recorded(stream)) {
    return cudaErrorIllegalState;
  }
  stream->recorded.emplace();
  stream->spoiled = false;
  ++recordings;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (!is_recorded(stream)) {
    return cudaErrorIllegalState;
  }
  --recordings;
  Jobs jobs = std::move(*stream->recorded);
  stream->recorded.reset();
  if (stream->spoiled) {
    return cudaErrorStreamCaptureInvalidated;
  }
  *graph = new EmulatedGraph{std::move(jobs)};
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = new EmulatedGraphExec{graph->jobs};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  if (is_recorded(stream)) {
    return cudaErrorStreamCaptureUnsupported;  // a graph within a graph is not emulated
  }
  ++pieces_of_work();
  for (const auto& job : executable->jobs) {
    job();
  }
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}
