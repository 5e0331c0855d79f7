#include "parallel/launch/rank_failure.h"

#include <fmt/format.h>

#include <new>

#include "core/error.h"
#include "parallel/comm/activity.h"
#include "parallel/comm/communicator.h"

namespace stagecoach {

namespace {

std::exception_ptr in_words(int rank) {
  const std::string activity = take_failed_activity();
  const std::string where = activity.empty() ? "" : ", in the " + activity;
  try {
    throw;
  } catch (const UsageError&) {
    return std::current_exception();
  } catch (const DataError&) {
    return std::current_exception();
  } catch (const CommError&) {
    return std::current_exception();  // already names its rank
  } catch (const Error& error) {
    return std::make_exception_ptr(Error(fmt::format("rank {}{}: {}", rank, where, error.what())));
  } catch (const std::bad_alloc&) {
    return std::make_exception_ptr(Error(fmt::format("rank {}{}: out of memory", rank, where)));
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace

std::exception_ptr with_rank(int rank) noexcept {
  try {
    return in_words(rank);
  } catch (...) {
    return std::current_exception();  // no memory for context either
  }
}

std::string words_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an unknown error";
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
