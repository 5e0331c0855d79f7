#include "parallel/launch/rank_threads.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/cores.h"
#include "core/start_thread.h"
#include "parallel/launch/rank_failure.h"

namespace stagecoach {
namespace {

/// The error of the rank that failed first; the errors of other ranks are consequences.
class FirstFailure {
 public:
  void note(std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    if (first_ == nullptr) {
      first_ = std::move(failure);
    }
  }
  void rethrow() const {
    if (first_ != nullptr) {
      std::rethrow_exception(first_);
    }
  }

 private:
  std::mutex mutex_;
  std::exception_ptr first_;
};

/// Lets all ranks begin once each has a thread, or none: a rank that began alone would wait for ranks that never start.
class StartingLine {
 public:
  /// Waits for the decision. Returns whether the rank may begin.
  bool wait() const {
    state_.wait(State::waiting);
    return state_ == State::all_there;
  }
  void begin() { decide(State::all_there); }
  void call_off() { decide(State::called_off); }

 private:
  enum class State : int { waiting, all_there, called_off };
  void decide(State state) {
    state_ = state;
    state_.notify_all();
  }
  std::atomic<State> state_ = State::waiting;
};

}  // namespace

bool enough_cores(const World& world) {
  return usable_cores().size() >= static_cast<std::size_t>(world.ranks) * static_cast<std::size_t>(world.threads);
}

void run_on_threads(const World& world,
                    const std::function<void(int rank, const std::shared_ptr<FlightRecorder>& recorder)>& run,
                    const std::function<void(int rank, const std::string& why)>& tell) {
  const std::vector<int> cores = usable_cores();
  const bool pinned = enough_cores(world) && world.threads == 1;
  FirstFailure failure;
  StartingLine line;
  const auto run_rank = [&](int r) {
    if (!line.wait()) {
      return;
    }
    std::shared_ptr<FlightRecorder> recorder;
    try {
      if (pinned) {
        run_on_cores({cores[static_cast<std::size_t>(r)]});
      }
      recorder = std::make_shared<FlightRecorder>();
      run(r, recorder);
    } catch (...) {
      const std::exception_ptr mine = with_rank(r);
      failure.note(mine);                 // before the other ranks are told
      std::string why = "out of memory";  // short enough to need no allocation
      try {
        why = words_of(mine);
      } catch (const std::bad_alloc&) {
      }
      tell(r, why);
      if (recorder != nullptr && is_error(mine)) {
        recorder->leave(r);
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    try {
      for (int r = 0; r < world.ranks; ++r) {
        threads.push_back(
            start_thread(fmt::format("thread {} of {}", r + 1, world.ranks), [&run_rank, r] { run_rank(r); }));
      }
    } catch (...) {
      line.call_off();
      throw;
    }
    line.begin();
  }
  failure.rethrow();
}

}  // namespace stagecoach
