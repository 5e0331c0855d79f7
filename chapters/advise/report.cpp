#include "chapters/advise/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/units.h"

namespace stagecoach {
namespace {

/// A number of a plan, under a name for JSON and CSV.
using Field = std::pair<const char*, double>;

double speedup(const Advice& advice, const Evaluated& plan) { return advice.one_device.seconds / plan.seconds; }

std::vector<Field> fields_of(const AdviceRequest& request, const Advice& advice, const Evaluated& plan) {
  const Candidate& candidate = plan.candidate;
  return {{"dp", candidate.mesh.data},
          {"pp", candidate.mesh.pipeline},
          {"tp", candidate.mesh.tensor},
          {"microbatches", candidate.microbatches},
          {"chunks", candidate.chunks},
          {"recompute", candidate.recompute ? 1 : 0},
          {"bucket_bytes", candidate.mesh.data > 1 ? static_cast<double>(candidate.bucket_size) : 0},
          {"step_seconds", plan.seconds},
          {"speed_up", speedup(advice, plan)},
          {"idle", plan.idle},
          {"memory_bytes", plan.worst().total()},
          {"headroom_bytes", request.memory_limit - plan.worst().total()},
          {"link_bytes", plan.link_bytes},
          {"samples_per_second", static_cast<double>(request.batch_size) / plan.seconds},
          {"staleness", plan.staleness}};
}

/// Returns the time of the best plan of a request that differs in one thing, beside that of `best`.
std::string with_change(const AdviceRequest& changed, const Evaluated& best, const std::string& what) {
  try {
    const Advice advice = advise(changed, 1);
    const Evaluated& plan = advice.best.front();
    const double gain = best.seconds / plan.seconds;
    return fmt::format("  {:<28} {}\n", what,
                       gain < 1.005 ? "no faster"
                                    : fmt::format("{:.2f} times as fast: {:.3f} ms with {}", gain, 1e3 * plan.seconds,
                                                  to_string(plan.candidate)));
  } catch (const UsageError&) {
    return "";  // no mesh of so many ranks shares the batch
  }
}

std::string memory_text(const RankMemory& memory) {
  std::vector<std::string> parts;
  for (const auto& [name, bytes] : {std::pair("weights", memory.weights),
                                    {"gradients", memory.gradients},
                                    {"optimizer", memory.optimizer},
                                    {"activations", memory.activations},
                                    {"messages", memory.messages},
                                    {"workspace", memory.workspace}}) {
    if (bytes > 0) {
      parts.push_back(fmt::format("{} {}", name, bytes_text(bytes)));
    }
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

std::string plans_table(const AdviceRequest& request, const Advice& advice) {
  std::string table = fmt::format("{:>3} {:>12} {:>9} {:>6} {:>9} {:>9} {:>11} {:>10} {:>10}  {}\n", "", "step time",
                                  "speed-up", "idle", "peak", "free", "MiB per link", "samples/s", "staleness", "plan");
  int number = 0;
  for (const Evaluated& plan : advice.best) {
    const double peak = plan.worst().total();
    table +=
        fmt::format("{:>3} {:>9.3f} ms {:>9.2f} {:>5.1f}% {:>9} {:>9} {:>12.1f} {:>10.0f} {:>10}  {}\n", ++number,
                    1e3 * plan.seconds, speedup(advice, plan), 100 * plan.idle, bytes_text(peak),
                    bytes_text(request.memory_limit - peak), plan.link_bytes / kMiB,
                    static_cast<double>(request.batch_size) / plan.seconds, plan.staleness, to_string(plan.candidate));
  }
  return table;
}

std::string why_text(const AdviceRequest& request, const Advice& advice) {
  const Evaluated& best = advice.best.front();
  const auto busiest = std::max_element(best.busy.begin(), best.busy.end());
  const auto fullest = &best.worst() - best.memory.data();
  std::string text =
      fmt::format("Why\n  rank {} works longest, {:.3f} ms of the step's {:.3f} ms\n  rank {} needs most memory: {}\n",
                  busiest - best.busy.begin(), 1e3 * *busiest, 1e3 * best.seconds, fullest, memory_text(best.worst()));
  AdviceRequest larger = request;
  larger.memory_limit += 1 << 30;
  AdviceRequest faster = request;
  faster.link_speed = 2;
  AdviceRequest more = request;
  more.ranks *= 2;
  text += "What would bring more\n";
  text += advice.too_large > 0 ? with_change(larger, best, "one more GiB per rank") : "";
  text += with_change(faster, best, "links twice as fast");
  return text + with_change(more, best, fmt::format("{} ranks", more.ranks));
}

std::string rejected_text(const Advice& advice, bool all) {
  std::vector<Rejected> rejected = advice.rejected;
  if (!all) {  // the fastest of those that were simulated first
    std::stable_sort(rejected.begin(), rejected.end(), [](const Rejected& a, const Rejected& b) {
      return a.seconds > 0 && (b.seconds == 0 || a.seconds < b.seconds);
    });
  }
  std::set<std::string> seen;
  for (const Evaluated& plan : advice.best) {
    seen.insert(plan.candidate.mesh.pipeline > 1 ? plan.candidate.schedule : "");
  }
  std::string text;
  for (const Rejected& one : rejected) {
    if (all || seen.insert(one.candidate.mesh.pipeline > 1 ? one.candidate.schedule : "").second) {
      text += fmt::format("  {}: {}\n", to_string(one.candidate), one.reason);
    }
  }
  return text.empty() ? "" : "Not among them\n" + text;
}

std::string plans_json(const AdviceRequest& request, const Advice& advice) {
  std::string json;
  for (const Evaluated& plan : advice.best) {
    json += fmt::format("{}\n  {{\"schedule\": \"{}\", \"split\": [{}]", json.empty() ? "[" : ",",
                        plan.candidate.schedule, fmt::join(plan.split, ", "));
    for (const auto& [name, value] : fields_of(request, advice, plan)) {
      json += fmt::format(", \"{}\": {}", name, value);
    }
    json += "}";
  }
  return json + "\n]\n";
}

std::string plans_csv(const AdviceRequest& request, const Advice& advice) {
  std::string csv = "schedule,split";
  for (const Field& field : fields_of(request, advice, advice.best.front())) {
    csv += fmt::format(",{}", field.first);
  }
  for (const Evaluated& plan : advice.best) {
    csv += fmt::format("\n{},{}", plan.candidate.schedule, fmt::join(plan.split, " "));
    for (const Field& field : fields_of(request, advice, plan)) {
      csv += fmt::format(",{}", field.second);
    }
  }
  return csv + "\n";
}

}  // namespace stagecoach
