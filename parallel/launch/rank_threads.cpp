#include "parallel/launch/rank_threads.h"

#include <exception>
#include <future>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "core/cores.h"
#include "core/start_thread.h"
#include "parallel/launch/rank_failure.h"

namespace stagecoach {

bool enough_cores(const World& world) {
  return usable_cores().size() >= static_cast<std::size_t>(world.ranks) * static_cast<std::size_t>(world.threads);
}

void run_on_threads(const World& world,
                    const std::function<void(int rank, const std::shared_ptr<FlightRecorder>& recorder)>& run,
                    const std::function<void(int rank, const std::string& why)>& tell) {
  const std::vector<int> cores = usable_cores();
  const bool pinned = enough_cores(world) && world.threads == 1;
  std::once_flag has_failed;
  std::exception_ptr first_failure;  // those of other ranks are consequences
  // All ranks begin once each has a thread, or none: a rank that began alone would wait for ranks that never start.
  std::promise<bool> all_there;
  const std::shared_future<bool> may_begin(all_there.get_future());
  const auto run_rank = [&](int r) {
    if (!may_begin.get()) {
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
      std::call_once(has_failed, [&] { first_failure = mine; });  // before the other ranks are told
      std::string why = "out of memory";                          // short enough to need no allocation
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
      all_there.set_value(false);
      throw;
    }
    all_there.set_value(true);
  }
  if (first_failure != nullptr) {
    std::rethrow_exception(first_failure);
  }
}

}  // namespace stagecoach
