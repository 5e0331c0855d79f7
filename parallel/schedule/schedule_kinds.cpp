#include "parallel/schedule/schedule_kinds.h"

#include <fmt/format.h>

#include "core/base/phrases.h"
#include "core/base/throw_if.h"
#include "parallel/schedule/schedule_table.h"

namespace stagecoach {
namespace {

template <class Condition>
std::vector<std::string> names_where(const Condition& condition) {
  std::vector<std::string> names;
  for (const ScheduleKind& kind : schedule_kinds()) {
    if (condition(kind)) {
      names.push_back(kind.name);
    }
  }
  return names;
}

}  // namespace

const std::vector<ScheduleKind>& schedule_kinds() {
  static const std::vector<ScheduleKind> kinds = [] {
    std::vector<ScheduleKind> all;
    for (const auto& kind : kScheduleTable) {
      all.push_back(kind());
    }
    return all;
  }();
  return kinds;
}

const ScheduleKind* find_schedule(const std::string& name) {
  const auto& kinds = schedule_kinds();
  const auto found = std::find_if(kinds.begin(), kinds.end(), [&](const auto& kind) { return kind.name == name; });
  return found == kinds.end() ? nullptr : &*found;
}

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> names = names_where([](const auto&) { return true; });
  return names;
}

Schedule make_schedule(const std::string& name, int p, int m, int v, int group) {
  const ScheduleKind* kind = find_schedule(name);
  if (kind == nullptr) {
    throw UsageError(
        fmt::format("unknown schedule: expected one of {1}, got '{0}'", name, fmt::join(schedule_names(), ", ")));
  }
  const int chunks = v == 0 ? kind->min_chunks : v;
  if (!kind->takes_chunks() && chunks != kind->min_chunks) {
    throw UsageError(fmt::format(
        "{} has {} per rank: expected {}, got {}; for another number of chunks give `schedule` {}", name,
        kind->is_v_shaped ? "two stages (one on each arm of its V)" : "one stage", counted(kind->min_chunks, "chunk"),
        v, fmt::join(names_where([](const auto& k) { return k.takes_chunks(); }), ", ")));
  }
  if (group != 0 && !kind->takes_group) {
    throw UsageError(fmt::format("{} has no groups; leave out `group`, or use {}", name,
                                 fmt::join(names_where([](const auto& k) { return k.takes_group; }), ", ")));
  }
  throw_if<UsageError>(
      group != 0 && chunks == 1,
      "{} with one chunk per rank has no groups: expected no `group`, got {}; leave out `group`, or use "
      "more `stages_per_rank`",
      name, group);
  return kind->make({p, m, chunks, group});
}

std::optional<IdleFormula> idle_formula(const std::string& schedule, int p, int m, int v) {
  const ScheduleKind* kind = find_schedule(schedule);
  if (kind == nullptr) {
    return std::nullopt;
  }
  IdleFormula formula{kind->idle_share, std::nullopt, kind->idle_domain};
  const PassTimes times;
  if (const auto idle = kind->idle({p, m, v}, times)) {
    formula.share = *idle / (m * times.total() + *idle);
  }
  return formula;
}

}  // namespace stagecoach
