#include "parallel/launch/run_ranks.h"

#include <fmt/format.h>

#include <exception>
#include <future>
#include <mutex>
#include <new>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/start_thread.h"
#include "core/base/system.h"
#include "parallel/comm/activity.h"

namespace stagecoach {
namespace {

/// Returns the exception that is being handled, with the rank, its stage and its micro-batch added to its text, unless
/// it is a user error or already names them.
std::exception_ptr with_rank(int rank) noexcept try {
  const std::string activity = take_failed_activity();
  const std::string where = fmt::format("rank {}{}{}", rank, activity.empty() ? "" : ", in the ", activity);
  try {
    throw;
  } catch (const UsageError&) {
  } catch (const DataError&) {
  } catch (const CommError&) {  // already names its rank
  } catch (const Error& error) {
    return std::make_exception_ptr(Error(fmt::format("{}: {}", where, error.what())));
  } catch (const std::bad_alloc&) {
    return std::make_exception_ptr(Error(where + ": out of memory"));
  } catch (...) {
  }
  return std::current_exception();
} catch (...) {
  return std::current_exception();  // no memory for context either
}

/// Returns the text of an error; nothing for an exception that ends a program normally, such as an interruption.
std::optional<std::string> error_text(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return std::nullopt;
  }
}

}  // namespace

bool enough_cores(const World& world) {
  return system::usable_cores().size() >=
         static_cast<std::size_t>(world.ranks) * static_cast<std::size_t>(world.threads);
}

Group world_group(const World& world, int rank, Device device, std::shared_ptr<Clock> clock,
                  std::shared_ptr<FlightRecorder> recorder) {
  std::vector<int> members(static_cast<std::size_t>(world.ranks));
  std::iota(members.begin(), members.end(), 0);
  return {.name = "world",
          .rank = rank,
          .members = members,
          .device = device,
          .clock = std::move(clock),
          .recorder = std::move(recorder),
          .reduce = world.reduce,
          .siblings = {members}};
}

void run_on_threads(const World& world,
                    const std::function<void(int rank, const std::shared_ptr<FlightRecorder>& recorder)>& run,
                    const std::function<void(int rank, const std::string& why)>& tell) {
  const std::vector<int> cores = system::usable_cores();
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
        system::run_on_cores({cores[static_cast<std::size_t>(r)]});
      }
      recorder = std::make_shared<FlightRecorder>();
      run(r, recorder);
    } catch (...) {
      const std::exception_ptr mine = with_rank(r);
      std::call_once(has_failed, [&] { first_failure = mine; });  // before the other ranks are told
      std::optional<std::string> why;
      try {
        why = error_text(mine);
      } catch (const std::bad_alloc&) {
        why = "out of memory";  // short enough to need no allocation
      }
      tell(r, why.value_or("it was interrupted"));
      if (recorder != nullptr && why) {
        recorder->leave(r);
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    threads.reserve(static_cast<std::size_t>(world.ranks));
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

void run_as_process(int rank, const std::function<void(const std::shared_ptr<FlightRecorder>& recorder)>& run,
                    const std::function<void(const std::string& why)>& tell) {
  const auto recorder = std::make_shared<FlightRecorder>();
  try {
    run(recorder);
  } catch (...) {
    const std::exception_ptr mine = with_rank(rank);
    if (const auto why = error_text(mine)) {
      recorder->leave(rank);
      tell(*why);
    }
    std::rethrow_exception(mine);
  }
}

}  // namespace stagecoach
