#include "tests/emulation/block.h"

#include <fmt/format.h>
#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "tests/emulation/fiber.h"

thread_local uint3 threadIdx{};
thread_local uint3 blockIdx{};
thread_local dim3 blockDim{};
thread_local dim3 gridDim{};

namespace stagecoach::cuda::emulation {
namespace {

constexpr std::size_t kMaxThreads = 1024;
constexpr std::size_t kWarp = 32;
constexpr std::size_t kMaxExchanged = 64;           // bytes per thread
constexpr std::size_t kMaxStaticShared = 48 << 10;  // what a block has without asking for more
constexpr std::size_t kMaxDynamicShared = 227 << 10;

std::string text_of(const uint3& at) { return fmt::format("({}, {}, {})", at.x, at.y, at.z); }

/// One shared object, as unaligned as its type allows: what else the kernel takes for granted is found.
class Shared {
 public:
  Shared(std::size_t bytes, std::size_t alignment)
      : bytes_(bytes), alignment_(alignment), memory_(new (std::align_val_t{2 * alignment}) char[alignment + bytes]) {
    std::memset(memory_, 0xff, alignment + bytes);
    ASAN_POISON_MEMORY_REGION(memory_, alignment);
  }
  ~Shared() {
    ASAN_UNPOISON_MEMORY_REGION(memory_, alignment_);
    ::operator delete[](memory_, std::align_val_t{2 * alignment_});
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  char* object() { return memory_ + alignment_; }
  bool is(std::size_t bytes, std::size_t alignment) const { return bytes == bytes_ && alignment == alignment_; }

 private:
  std::size_t bytes_;
  std::size_t alignment_;
  char* memory_;
};

/// Whom a thread waits for.
enum class Scope { nobody, warp, block };

/// Runs the threads of one block after another. Each CPU thread has one, so that its fibers are made once.
class Runner {
 public:
  void run_block(Thread thread, std::size_t max_shared_bytes, bool backwards);
  void wait(Scope scope, const std::source_location& where);
  void* shared(std::size_t bytes, std::size_t alignment);
  int lane() const { return static_cast<int>(current_->at % kWarp); }
  const void* exchange(const void* mine, std::size_t bytes, const std::source_location& where);

 private:
  /// A fiber runs threads until one of them waits; then another fiber goes on with the threads that have not begun.
  struct Worker {
    explicit Worker(Runner& owner) : runner(owner), fiber(&Worker::work, this) {}
    static void work(void* self);
    Runner& runner;
    Fiber fiber;
    std::size_t at = 0;  // its thread's number in the block
    uint3 index{};
    std::size_t shared_objects = 0;  // that its thread has asked for
    std::size_t exchanges = 0;       // that its thread has taken part in
    Scope waits = Scope::nobody;
    std::source_location where;
  };
  using Workers = std::vector<Worker*>;

  bool start_next(Worker& worker);
  void resume(Worker& worker);
  void begin_all();
  Workers waiting();
  Workers whole_warp(const Workers& waiting) const;
  std::size_t threads_of_warp(std::size_t warp) const { return std::min(kWarp, threads_ - warp * kWarp); }
  void check_barrier(const Workers& waiting) const;
  static void check_same_place(const Workers& waiting);
  [[noreturn]] void abandon();

  Thread thread_{};
  bool backwards_ = false;
  std::size_t threads_ = 0;
  std::size_t begun_ = 0;
  std::deque<std::unique_ptr<Worker>> workers_;
  Worker* current_ = nullptr;
  std::deque<Shared> shared_;
  std::size_t shared_bytes_ = 0;
  std::size_t max_shared_bytes_ = 0;
  std::vector<char> exchanged_;  // two rounds by turns, of all threads
  std::exception_ptr failure_;
};

/// A fiber's life: one thread after the other, in this block and in later ones.
void Runner::Worker::work(void* self) {
  auto& worker = *static_cast<Worker*>(self);
  for (;;) {
    while (worker.runner.failure_ == nullptr && worker.runner.start_next(worker)) {
      try {
        worker.runner.thread_();
      } catch (...) {
        worker.runner.failure_ = std::current_exception();
      }
    }
    worker.fiber.pause();
  }
}

/// Makes `worker` the next thread that has not begun; false when all have.
bool Runner::start_next(Worker& worker) {
  if (begun_ == threads_) {
    return false;
  }
  const std::size_t at = backwards_ ? threads_ - 1 - begun_ : begun_;
  ++begun_;
  const std::size_t row = at / blockDim.x;
  worker.at = at;
  worker.index = {static_cast<unsigned>(at % blockDim.x), static_cast<unsigned>(row % blockDim.y),
                  static_cast<unsigned>(row / blockDim.y)};
  worker.shared_objects = 0;
  worker.exchanges = 0;
  threadIdx = worker.index;
  return true;
}

void Runner::resume(Worker& worker) {
  current_ = &worker;
  worker.waits = Scope::nobody;
  threadIdx = worker.index;
  worker.fiber.resume();
  current_ = nullptr;
  if (failure_ != nullptr) {
    abandon();
  }
}

/// Lets every thread run up to its first barrier, or its end.
void Runner::begin_all() {
  for (std::size_t w = 0; begun_ < threads_; ++w) {
    if (w == workers_.size()) {
      workers_.push_back(std::make_unique<Worker>(*this));
    }
    resume(*workers_[w]);
  }
}

Runner::Workers Runner::waiting() {
  Workers found;
  for (const auto& worker : workers_) {
    if (worker->waits != Scope::nobody) {
      found.push_back(worker.get());
    }
  }
  return found;
}

std::string place_of(const std::source_location& where) {
  return fmt::format("{}:{}", short_path(where.file_name()), where.line());
}

/// The threads of one warp that waits for itself only, and is all there. One at a time: so warps run as far apart as
/// the barriers of the block let them.
Runner::Workers Runner::whole_warp(const Workers& waiting) const {
  std::map<std::size_t, Workers> warps;
  for (Worker* worker : waiting) {
    if (worker->waits == Scope::warp) {
      warps[worker->at / kWarp].push_back(worker);
    }
  }
  for (const auto& [warp, workers] : warps) {
    if (workers.size() == threads_of_warp(warp)) {
      check_same_place(workers);
      return workers;
    }
  }
  return {};
}

/// Throws unless all threads of the block wait for the block.
void Runner::check_barrier(const Workers& waiting) const {
  const auto alone =
      std::find_if(waiting.begin(), waiting.end(), [](const Worker* worker) { return worker->waits == Scope::warp; });
  if (alone != waiting.end()) {
    const std::size_t warp = (*alone)->at / kWarp;
    const auto there = std::count_if(waiting.begin(), waiting.end(), [&](const Worker* worker) {
      return worker->waits == Scope::warp && worker->at / kWarp == warp;
    });
    throw Error(fmt::format("{} of {} threads of warp {} of block {} wait for their warp at {}, the others do not",
                            there, threads_of_warp(warp), warp, text_of(blockIdx), place_of((*alone)->where)));
  }
  if (waiting.size() != threads_) {
    throw Error(fmt::format("{} of {} threads of block {} wait at the barrier {}, the others have returned",
                            waiting.size(), threads_, text_of(blockIdx), place_of(waiting.front()->where)));
  }
  check_same_place(waiting);
}

void Runner::check_same_place(const Workers& waiting) {
  const Worker& first = *waiting.front();
  for (const Worker* worker : waiting) {
    if (worker->where.line() != first.where.line() ||
        std::strcmp(worker->where.file_name(), first.where.file_name()) != 0) {
      throw Error(fmt::format("threads of block {} wait at different barriers: {} at {}, {} at {}", text_of(blockIdx),
                              text_of(first.index), place_of(first.where), text_of(worker->index),
                              place_of(worker->where)));
    }
  }
}

/// Threads that still wait will never go on, so the next block gets new fibers.
void Runner::abandon() {
  workers_.clear();
  std::rethrow_exception(std::exchange(failure_, nullptr));
}

void Runner::run_block(Thread thread, std::size_t max_shared_bytes, bool backwards) {
  thread_ = thread;
  max_shared_bytes_ = max_shared_bytes;
  backwards_ = backwards;
  threads_ = std::size_t{blockDim.x} * blockDim.y * blockDim.z;
  begun_ = 0;
  shared_.clear();
  shared_bytes_ = 0;
  begin_all();
  for (auto open = waiting(); !open.empty(); open = waiting()) {
    Workers ready;
    try {
      ready = whole_warp(open);
      if (ready.empty()) {
        check_barrier(open);
        ready = open;
      }
    } catch (...) {
      failure_ = std::current_exception();
      abandon();
    }
    for (Worker* worker : ready) {
      resume(*worker);
    }
  }
}

void Runner::wait(Scope scope, const std::source_location& where) {
  current_->waits = scope;
  current_->where = where;
  current_->fiber.pause();
}

void* Runner::shared(std::size_t bytes, std::size_t alignment) {
  const std::size_t index = current_->shared_objects++;
  if (index == shared_.size()) {
    shared_bytes_ += bytes;
    if (shared_bytes_ > max_shared_bytes_) {
      throw Error(fmt::format("a block shares {} bytes, it may share {}", shared_bytes_, max_shared_bytes_));
    }
    shared_.emplace_back(bytes, alignment);
  }
  if (!shared_[index].is(bytes, alignment)) {
    throw Error("the threads of a block declare different shared objects");
  }
  return shared_[index].object();
}

/// A thread may still read the last round while another writes the next, but not the one after that.
const void* Runner::exchange(const void* mine, std::size_t bytes, const std::source_location& where) {
  const std::size_t warp = current_->at / kWarp;
  if (bytes > kMaxExchanged || threads_of_warp(warp) != kWarp) {
    throw Error(fmt::format("an exchange of {} bytes by a warp of {} threads", bytes, threads_of_warp(warp)));
  }
  const std::size_t round = current_->exchanges++ % 2;
  exchanged_.resize(std::max(exchanged_.size(), 2 * kMaxThreads * kMaxExchanged));
  char* warp_values = exchanged_.data() + (round * kMaxThreads + warp * kWarp) * kMaxExchanged;
  std::memcpy(warp_values + current_->at % kWarp * bytes, mine, bytes);
  wait(Scope::warp, where);
  return warp_values;
}

Runner& runner() {
  thread_local Runner runner;
  return runner;
}

std::string name_of(const void* kernel) {
  const char* name = nullptr;
  cudaFuncGetName(&name, kernel);
  return name == nullptr ? "of unknown name" : name;
}

}  // namespace

cudaError_t check_launch(dim3 grid, dim3 block, std::size_t shared_bytes) {
  const std::size_t threads = std::size_t{block.x} * block.y * block.z;
  const bool good = grid.x >= 1 && grid.y >= 1 && grid.z >= 1 && grid.x <= 0x7fffffff && grid.y <= 0xffff &&
                    grid.z <= 0xffff && threads >= 1 && threads <= kMaxThreads && block.z <= 64;
  if (!good) {
    return cudaErrorInvalidConfiguration;
  }
  return shared_bytes <= kMaxDynamicShared ? cudaSuccess : cudaErrorInvalidValue;
}

void run(const void* kernel, dim3 grid, dim3 block, std::size_t shared_bytes, Thread thread) {
  gridDim = grid;
  blockDim = block;
  bool backwards = false;
  try {
    for (unsigned z = 0; z < grid.z; ++z) {
      for (unsigned y = 0; y < grid.y; ++y) {
        for (unsigned x = 0; x < grid.x; ++x) {
          blockIdx = {x, y, z};
          runner().run_block(thread, std::max(shared_bytes, kMaxStaticShared), backwards);
          backwards = !backwards;
        }
      }
    }
  } catch (const Error& error) {
    throw Error(fmt::format("emulated kernel {}: {}", name_of(kernel), error.what()));
  }
}

void* shared(std::size_t bytes, std::size_t alignment) { return runner().shared(bytes, alignment); }

int lane() { return runner().lane(); }

const void* exchange(const void* mine, std::size_t bytes, const std::source_location& where) {
  return runner().exchange(mine, bytes, where);
}

}  // namespace stagecoach::cuda::emulation

// Of the runner of this CPU thread: a fiber stays on it.
void __syncthreads(std::source_location where) {
  using namespace stagecoach::cuda::emulation;
  runner().wait(Scope::block, where);
}

void __syncwarp(std::source_location where) {
  using namespace stagecoach::cuda::emulation;
  runner().wait(Scope::warp, where);
}
