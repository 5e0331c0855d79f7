#include "parallel/comm/activity.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

namespace stagecoach {
namespace {

thread_local const Activity* current = nullptr;
thread_local std::string failed;

}  // namespace

Activity::Activity(const char* operation, int stage, int microbatch)
    : before_(current), exceptions_before_(std::uncaught_exceptions()), work_{operation, stage, microbatch} {
  current = this;
}

Activity::~Activity() {
  current = before_;
  if (std::uncaught_exceptions() > exceptions_before_ && failed.empty()) {
    failed = to_string(work_);
  }
}

std::string to_string(const Activity::Work& work) {
  std::string text = work.operation;
  text += work.stage == Activity::kNone ? "" : fmt::format(" of stage {}", work.stage);
  return text + (work.microbatch == Activity::kNone ? "" : fmt::format(", micro-batch {}", work.microbatch));
}

Activity::Work current_work() { return current == nullptr ? Activity::Work{} : current->work_; }

std::string current_activity() { return to_string(current_work()); }

std::string take_failed_activity() { return std::exchange(failed, ""); }

}  // namespace stagecoach
