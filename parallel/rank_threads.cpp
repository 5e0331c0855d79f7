#include "parallel/rank_threads.h"

#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/cores.h"
#include "parallel/rank_failure.h"

namespace stagecoach {
namespace {

/// The error of the rank that failed first; those of the others follow from it.
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
  const auto run_rank = [&](int r) {
    if (pinned) {
      run_on_cores({cores[static_cast<std::size_t>(r)]});
    }
    const auto recorder = std::make_shared<FlightRecorder>();
    try {
      run(r, recorder);
    } catch (...) {
      const std::exception_ptr mine = with_rank(r);
      failure.note(mine);  // before the others hear of it
      tell(r, words_of(mine));
      if (is_error(mine)) {
        recorder->leave(r);
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < world.ranks; ++r) {
      threads.emplace_back(run_rank, r);
    }
  }
  failure.rethrow();
}

}  // namespace stagecoach
