#include "parallel/comm/activity.h"

#include <fmt/format.h>

namespace stagecoach {
namespace {

thread_local const Activity* current = nullptr;

}  // namespace

Activity::Activity(const char* operation, int stage, int microbatch)
    : before_(current), operation_(operation), stage_(stage), microbatch_(microbatch) {
  current = this;
}

Activity::~Activity() { current = before_; }

std::string current_activity() {
  return current == nullptr ? ""
                            : fmt::format("{} of stage {}, micro-batch {}", current->operation_, current->stage_,
                                          current->microbatch_);
}

}  // namespace stagecoach
