#include "parallel/rank_threads.h"

#include <pthread.h>
#include <sched.h>

#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "parallel/rank_failure.h"

namespace stagecoach {
namespace {

/// The cores that this process may use.
std::vector<int> usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) {
        cores.push_back(core);
      }
    }
  }
  return cores;
}

/// A hint: where it is refused the rank runs all the same.
void pin_to(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  static_cast<void>(::pthread_setaffinity_np(::pthread_self(), sizeof(set), &set));
}

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
      pin_to(cores[static_cast<std::size_t>(r)]);
    }
    const auto recorder = std::make_shared<FlightRecorder>();
    try {
      run(r, recorder);
    } catch (...) {
      const std::exception_ptr mine = with_rank(r);
      failure.note(mine);  // before the others hear of it
      tell(r, words_of(mine));
      if (is_error(mine)) {
        leave_flight_record(*recorder, world.flight_folder, r);
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
