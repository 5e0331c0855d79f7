#include "chapters/common/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

namespace stagecoach {
namespace {

struct Row {
  double seconds = 0;
  std::int64_t calls = 0;
};

}  // namespace

std::string profile_table(const Trace& trace, std::int64_t steps) {
  std::map<std::pair<std::string, std::string>, Row> rows;
  double total = 0;
  for (const Trace::Event& event : trace.events()) {
    if (std::string_view(event.category) == "action" || event.track >= Trace::kBeside) {
      continue;  // a stage's whole forward or backward, whose operations have rows of their own; or a span beside the
                 // thread's own work
    }
    Row& row = rows[{event.name, event.category}];
    row.seconds += event.seconds;
    ++row.calls;
    total += event.seconds;
  }
  std::vector<std::pair<std::pair<std::string, std::string>, Row>> sorted(rows.begin(), rows.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  std::string table = fmt::format("Where the time went in the first {} steps\n  {:<20} {:<10} {:>6} {:>12} {:>7}\n",
                                  steps, "operation", "pass", "calls", "us per step", "share");
  for (const auto& [key, row] : sorted) {
    table += fmt::format("  {:<20} {:<10} {:>6} {:>12.1f} {:>6.1f}%\n", key.first, key.second, row.calls,
                         1e6 * row.seconds / static_cast<double>(steps), 100 * row.seconds / total);
  }
  return table;
}

}  // namespace stagecoach
