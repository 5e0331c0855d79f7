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
    : before_(current),
      exceptions_before_(std::uncaught_exceptions()),
      operation_(operation),
      stage_(stage),
      microbatch_(microbatch) {
  current = this;
}

Activity::~Activity() {
  current = before_;
  if (std::uncaught_exceptions() > exceptions_before_ && failed.empty()) {
    failed = text();
  }
}

std::string Activity::text() const {
  std::string text = operation_;
  text += stage_ == kNone ? "" : fmt::format(" of stage {}", stage_);
  return text + (microbatch_ == kNone ? "" : fmt::format(", micro-batch {}", microbatch_));
}

std::string current_activity() { return current == nullptr ? "" : current->text(); }

std::string take_failed_activity() { return std::exchange(failed, ""); }

}  // namespace stagecoach
