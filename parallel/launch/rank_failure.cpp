#include "parallel/launch/rank_failure.h"

#include <fmt/format.h>

#include <new>

#include "core/error.h"
#include "parallel/comm/activity.h"
#include "parallel/comm/communicator.h"

namespace stagecoach {

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

std::string words_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "it stops";
  }
}

bool is_error(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception&) {
    return true;
  } catch (...) {
    return false;
  }
}

void run_as_process(int rank, const std::function<void(const std::shared_ptr<FlightRecorder>& recorder)>& run,
                    const std::function<void(const std::string& why)>& tell) {
  const auto recorder = std::make_shared<FlightRecorder>();
  try {
    run(recorder);
  } catch (...) {
    const std::exception_ptr mine = with_rank(rank);
    if (is_error(mine)) {
      recorder->leave(rank);
      tell(words_of(mine));
    }
    std::rethrow_exception(mine);
  }
}

}  // namespace stagecoach
