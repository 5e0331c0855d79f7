// Two thousand lowered tables that were broken at random: each is refused with a reason, or trains what one device
// trains.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/random.h"
#include "parallel/schedule/check.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/schedule_kinds.h"
#include "parallel/schedule/simulate.h"
#include "parallel/schedule/text.h"
#include "tests/parallel/pipeline_training.h"

namespace stagecoach {
namespace {

using test::expect_equal;
using test::in_pipeline;
using test::on_one_device;
using test::Task;
using test::uneven_model;

const Task kTask{uneven_model, {6}, 4, 1};
constexpr int kRanks = 3;
constexpr int kMicrobatches = 3;

class Damage {
 public:
  explicit Damage(std::uint64_t seed) : random_(seed, "damage") {}

  std::size_t below(std::size_t bound) { return random_.below(draw_++, static_cast<std::uint32_t>(bound)); }

  Schedule legal() {
    const std::string& name = schedule_names()[below(schedule_names().size())];
    const Schedule computations = make_schedule(name, kRanks, kMicrobatches);
    Schedule schedule = lower(computations, {.receives = static_cast<int>(below(4))});
    return below(2) == 0 ? schedule : with_reductions(schedule);
  }
  /// What was done, for a failure's text; "" if there was nothing to do it to.
  std::string apply(Schedule& schedule) {
    auto& actions = schedule.ranks[below(kRanks)];
    std::vector<std::size_t> messages;
    for (std::size_t i = 0; i < actions.size(); ++i) {
      if (is_communication(actions[i].operation)) {
        messages.push_back(i);
      }
    }
    if (messages.empty()) {
      return "";
    }
    const std::size_t i = messages[below(messages.size())];
    const std::size_t j = messages[below(messages.size())];
    const std::string first = to_string(actions[i]);
    const std::string second = to_string(actions[j]);
    switch (below(6)) {
      case 0:
        actions.erase(actions.begin() + static_cast<std::ptrdiff_t>(i));
        return first + " is dropped";
      case 1:
        actions.insert(actions.begin() + static_cast<std::ptrdiff_t>(j), Action(actions[i]));
        return first + " is doubled";
      case 2:
        std::swap(actions[i], actions[j]);
        return first + " and " + second + " change places";
      case 3:
        actions[i].microbatch = static_cast<int>(below(kMicrobatches + 1)) - 1;
        return first + " becomes " + to_string(actions[i]);
      case 4:
        actions[i].operation = static_cast<Operation>(below(kOperations));
        return first + " becomes " + to_string(actions[i]);
      default: {
        const Action moved = actions[i];
        actions.erase(actions.begin() + static_cast<std::ptrdiff_t>(i));
        actions.insert(actions.begin() + static_cast<std::ptrdiff_t>(below(actions.size() + 1)), moved);
        return first + " is moved";
      }
    }
  }

 private:
  Philox random_;
  std::uint64_t draw_ = 0;
};

TEST(LoweredMutations, AreRefusedWithAReasonOrHarmless) {
  const auto wanted = on_one_device(kTask, kMicrobatches);
  Damage damage(22);
  int refused = 0;
  int harmless = 0;
  int waits = 0;
  while (refused + harmless < 2000) {
    const Schedule whole = damage.legal();
    Schedule schedule = whole;
    const std::string what = damage.apply(schedule);
    if (what.empty() || schedule == whole) {
      continue;
    }
    SCOPED_TRACE(what + "\n" + to_text(schedule));
    const auto problems = check(schedule);
    if (!problems.empty()) {
      ++refused;
      EXPECT_FALSE(problems.front().empty());
      continue;
    }
    ++harmless;
    expect_equal(wanted, in_pipeline(kTask, schedule));
    EXPECT_GT(simulate(schedule, Costs::uniform(schedule.stage_count(), 1, 1, 1)).seconds, 0);
    // What can run may still stand still where sends wait; then check says that this is why.
    schedule.sends_wait = true;
    const auto waiting = check(schedule);
    waits += waiting.empty() ? 0 : 1;
    EXPECT_TRUE(waiting.empty() || waiting.front().starts_with("deadlock, because sends wait")) << waiting.front();
    if (waiting.empty()) {
      expect_equal(wanted, in_pipeline(kTask, schedule));
    }
    if (HasFailure()) {
      break;
    }
  }
  EXPECT_GT(refused, 1000) << "most damage matters";
  EXPECT_GT(harmless, 80) << "a receive may be posted earlier or later";
  EXPECT_GT(waits, 20) << "some of it only as long as sends do not wait";
}

}  // namespace
}  // namespace stagecoach
