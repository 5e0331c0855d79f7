#include <utility>

#include "core/cuda/memory.h"
#include "core/cuda/queues.h"
#include "core/cuda_backend.h"

namespace stagecoach::cuda {
namespace {

using GraphHandle = Handle<cudaGraph_t, cudaGraphDestroy>;
using ExecutableHandle = Handle<cudaGraphExec_t, cudaGraphExecDestroy>;

class RecordedGraph final : public Graph {
 public:
  RecordedGraph(Device device, std::shared_ptr<Allocator> memory, ExecutableHandle executable)
      : device_(device),
        stream_(compute_stream(device)),
        memory_(std::move(memory)),
        executable_(std::move(executable)) {}
  ~RecordedGraph() override { static_cast<void>(cudaStreamSynchronize(stream_)); }
  void launch() override {
    select(device_);
    STAGECOACH_CUDA(cudaGraphLaunch(executable_.get(), stream_));
  }

 private:
  Device device_;
  cudaStream_t stream_;
  std::shared_ptr<Allocator> memory_;  // kept alive: the recorded work contains addresses in it
  ExecutableHandle executable_;
};

/// Records the stream until the end of the scope, also after an exception.
class Recording {
 public:
  explicit Recording(cudaStream_t stream) : stream_(stream) {
    // Only this thread is restricted while it records: concurrent ranks continue normally.
    STAGECOACH_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  }
  ~Recording() {
    if (stream_ != nullptr) {
      cudaGraph_t unfinished = nullptr;
      static_cast<void>(cudaStreamEndCapture(stream_, &unfinished));
      cudaGetLastError();
      const GraphHandle owner(unfinished);
    }
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  GraphHandle end() {
    cudaGraph_t graph = nullptr;
    STAGECOACH_CUDA(cudaStreamEndCapture(std::exchange(stream_, nullptr), &graph));
    return GraphHandle(graph);
  }

 private:
  cudaStream_t stream_;
};

}  // namespace

std::unique_ptr<Graph> record_graph(Device device, const std::function<void()>& work) {
  select(device);
  const StreamHandle stream = make_stream();
  auto memory = std::make_shared<Allocator>(std::make_unique<MemoryOf>(cuda::allocator(device), false),
                                            "the graph recorded on " + to_string(device));
  GraphHandle graph;
  {
    Recording recording(stream.get());
    const RecordOn scope(device, stream.get(), memory);
    work();
    graph = recording.end();
  }
  cudaGraphExec_t executable = nullptr;
  STAGECOACH_CUDA(cudaGraphInstantiate(&executable, graph.get(), 0));
  return std::make_unique<RecordedGraph>(device, std::move(memory), ExecutableHandle(executable));
}

}  // namespace stagecoach::cuda
