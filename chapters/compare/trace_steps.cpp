#include "chapters/compare/trace_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/base/parse_json.h"
#include "core/base/text_file.h"
#include "core/trace.h"

namespace stagecoach {
namespace {

using Json = nlohmann::json;

constexpr double kEighths = 8;                 // per microsecond, the unit of traces
constexpr std::uintmax_t kMaxFile = 64 << 20;  // a larger trace takes too long to read, and no step of it would fit
enum Process { kMeasured = 1, kPredicted = 2 };

struct TimedSpan {
  std::string name;
  double start;
  double end;
};

/// What a process of the trace did, by rank.
struct Tracks {
  std::map<int, std::vector<TimedSpan>> actions;  ///< computations and updates
  std::map<int, std::vector<TimedSpan>> kernels;  ///< the operations of a program without actions
  std::map<int, std::vector<TimedSpan>> waits;
  std::map<int, std::map<std::pair<int, int>, TimedSpan>> steps;  ///< by (epoch, step)
  std::map<int, std::vector<TimedSpan>> messages;                 ///< by the rank that sends them
  std::map<std::pair<int, int>, double> links;                    ///< bytes
};

struct Samples {
  std::vector<double> times;
  std::vector<double> bytes;
};

/// Returns the name of an action as in a table, such as "1F3"; without numbers where it has none: "F", "B", "U".
std::string short_name(const std::string& category, const std::string& name) {
  if (category == "update") {
    return "U";
  }
  return !name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) != 0 ? name
         : category == "forward" || name == "forward"                            ? "F"
                                                                                 : "B";
}

class TraceReader {
 public:
  explicit TraceReader(const Json& trace) {
    for (const Json& event : trace.at("traceEvents")) {
      const std::string phase = event.at("ph").get<std::string>();
      if (phase == "M" && event.at("name") == "thread_name") {
        add_track(event.at("tid").get<int>(), event.at("args").at("name").get<std::string>());
      }
    }
    for (const Json& event : trace.at("traceEvents")) {
      const std::string phase = event.at("ph").get<std::string>();
      if (phase == "X") {
        add_span(event);
      } else if (phase == "C") {
        add_sample(event);
      }
    }
  }

  Json steps(std::size_t max_bytes) const;

 private:
  void add_track(int track, const std::string& name) {
    int from = 0;
    int to = 0;
    if (std::sscanf(name.c_str(), "link %d -> %d", &from, &to) == 2) {
      links_[track] = {from, to};
    }
  }

  void add_sample(const Json& event) {
    int rank = 0;
    if (std::sscanf(event.at("name").get<std::string>().c_str(), "memory of rank %d", &rank) == 1) {
      memory_[rank].times.push_back(event.at("ts").get<double>());
      memory_[rank].bytes.push_back(event.at("args").at("bytes").get<double>());
    }
  }

  void add_span(const Json& event) {
    const int track = event.at("tid").get<int>();
    const int rank = track - 1;
    Tracks& tracks = event.at("pid").get<int>() == kPredicted ? predicted_ : measured_;
    const auto category = event.at("cat").get<std::string>();
    const double start = event.at("ts").get<double>();
    const TimedSpan span{event.at("name").get<std::string>(), start, start + event.at("dur").get<double>()};
    if (category == "link" && links_.contains(track)) {
      tracks.messages[links_.at(track).first].push_back(span);
      tracks.links[links_.at(track)] += event.at("args").value("bytes", 0.0);
    } else if (rank >= Trace::kBeside) {
      return;
    } else if (category == "step") {
      const Json& args = event.at("args");
      tracks.steps[rank].insert({{args.at("epoch").get<int>(), args.at("step").get<int>()}, span});
    } else if (category == "action" || category == "update") {
      tracks.actions[rank].push_back({short_name(category, span.name), span.start, span.end});
    } else if (category == "wait") {
      tracks.waits[rank].push_back(span);
    } else if (category == "forward" || category == "backward") {
      tracks.kernels[rank].push_back({short_name(category, ""), span.start, span.end});
    }
  }

  std::map<int, std::pair<int, int>> links_;
  std::map<int, Samples> memory_;
  Tracks measured_;
  Tracks predicted_;
};

/// Returns an action without what its rank waits for before its first operation and after its last one.
TimedSpan without_waits(TimedSpan action, const std::vector<TimedSpan>& kernels, const std::vector<TimedSpan>& waits) {
  const auto begins_before = [](const TimedSpan& span, double time) { return span.start < time; };
  const auto first = std::lower_bound(kernels.begin(), kernels.end(), action.start, begins_before);
  const auto after = std::lower_bound(first, kernels.end(), action.end, begins_before);
  if (first == after) {
    return action;
  }
  const double first_start = first->start;
  const double last_end = std::prev(after)->end;
  for (auto wait = std::lower_bound(waits.begin(), waits.end(), action.start, begins_before);
       wait != waits.end() && wait->start < action.end; ++wait) {
    if (wait->end <= first_start) {
      action.start = std::max(action.start, wait->end);
    } else if (wait->start >= last_end) {
      action.end = std::min(action.end, wait->start);
    }
  }
  return action;
}

double eighths(double time, double begin) { return std::round(kEighths * (time - begin)); }

void append(Json& list, const std::string& name, std::initializer_list<double> numbers) {
  list.push_back(name);
  for (const double number : numbers) {
    list.push_back(static_cast<std::int64_t>(number));
  }
}

/// Returns the operations between `from` and `to`, joined where one follows another of the same name.
std::vector<TimedSpan> joined(const std::vector<TimedSpan>& kernels, double from, double to) {
  std::vector<TimedSpan> all;
  for (const TimedSpan& kernel : kernels) {
    if (kernel.start < from || kernel.start >= to) {
      continue;
    }
    if (!all.empty() && all.back().name == kernel.name) {
      all.back().end = std::max(all.back().end, kernel.end);
    } else {
      all.push_back(kernel);
    }
  }
  return all;
}

/// Returns what a rank does in a step: its actions, or if it has none its operations, joined.
std::vector<TimedSpan> actions_in(const TimedSpan& step, const std::vector<TimedSpan>& all,
                                  const std::vector<TimedSpan>& kernels, const std::vector<TimedSpan>& waits) {
  std::vector<TimedSpan> actions;
  for (const TimedSpan& action : all) {
    if (action.start >= step.start && action.start < step.end) {
      actions.push_back(without_waits(action, kernels, waits));
    }
  }
  if (std::all_of(actions.begin(), actions.end(), [](const TimedSpan& action) { return action.name == "U"; })) {
    const std::vector<TimedSpan> passes = joined(kernels, step.start, step.end);
    actions.insert(actions.begin(), passes.begin(), passes.end());
  }
  return actions;
}

/// Returns what belongs to the rank; an empty value if nothing does.
template <class Value>
const Value& of_rank(const std::map<int, Value>& values, int rank) {
  static const Value kNone;
  const auto found = values.find(rank);
  return found == values.end() ? kNone : found->second;
}

/// Returns what each rank does in the step of that number.
std::vector<std::vector<TimedSpan>> actions_by_rank(const Tracks& tracks, const std::pair<int, int>& number,
                                                    int ranks) {
  std::vector<std::vector<TimedSpan>> all(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    const auto steps = tracks.steps.find(rank);
    if (steps != tracks.steps.end() && steps->second.contains(number)) {
      all[static_cast<std::size_t>(rank)] = actions_in(steps->second.at(number), of_rank(tracks.actions, rank),
                                                       of_rank(tracks.kernels, rank), of_rank(tracks.waits, rank));
    }
  }
  return all;
}

/// Returns one list of actions per rank.
Json json_of(const std::vector<std::vector<TimedSpan>>& ranks, double begin) {
  Json all = Json::array();
  for (const auto& actions : ranks) {
    Json list = Json::array();
    for (const TimedSpan& action : actions) {
      append(list, action.name, {eighths(action.start, begin), kEighths * (action.end - action.start)});
    }
    all.push_back(std::move(list));
  }
  return all;
}

/// Returns when a step begins, whose first rank enters it at `entered`: ranks that wait there for others which are
/// still in the step before, up to `previous_end`, would seem idle.
double begin_of(const std::vector<std::vector<TimedSpan>>& ranks, double entered, double previous_end) {
  double first = previous_end;
  for (const auto& actions : ranks) {
    for (const TimedSpan& action : actions) {
      first = std::min(first, action.start);
    }
  }
  return std::max(entered, first);
}

/// Returns [name, arrival, …] of the messages that ranks send in the step of that number.
Json arrivals_of(const Tracks& tracks, const std::pair<int, int>& number, double begin) {
  Json list = Json::array();
  for (const auto& [rank, messages] : tracks.messages) {
    const auto steps = tracks.steps.find(rank);
    if (steps == tracks.steps.end() || !steps->second.contains(number)) {
      continue;
    }
    const TimedSpan& step = steps->second.at(number);
    for (const TimedSpan& message : messages) {
      const bool is_of_stages = std::isdigit(static_cast<unsigned char>(message.name[0])) != 0;
      if (is_of_stages && message.start >= step.start && message.start < step.end) {
        append(list, message.name, {eighths(message.end, begin)});
      }
    }
  }
  return list;
}

Json memory_of(const Samples& samples, double begin, double end) {
  Json list = Json::array();
  double before = samples.bytes.empty() ? 0 : samples.bytes.front();
  for (std::size_t i = 0; i < samples.times.size() && samples.times[i] < end; ++i) {
    if (samples.times[i] <= begin) {
      before = samples.bytes[i];
      continue;
    }
    if (list.empty()) {
      list.insert(list.end(), {0, static_cast<std::int64_t>(before)});
    }
    list.insert(list.end(), {static_cast<std::int64_t>(eighths(samples.times[i], begin)),
                             static_cast<std::int64_t>(samples.bytes[i])});
  }
  return list;
}

Json TraceReader::steps(std::size_t max_bytes) const {
  const int ranks = measured_.steps.empty() ? 0 : measured_.steps.rbegin()->first + 1;
  if (ranks == 0) {
    return no_trace_steps("trace.json has no finished step");
  }
  Json trace = no_trace_steps("");
  trace["ranks"] = ranks;
  const auto& numbers = measured_.steps.begin()->second;
  for (const auto& [link, bytes] : predicted_.links) {
    trace["predicted_links"].push_back({link.first, link.second, bytes / static_cast<double>(numbers.size())});
  }
  std::size_t size = 0;
  double previous_end = 0;
  for (const auto& [number, first] : numbers) {
    double begin = first.start;
    double end = first.end;
    for (const auto& [rank, steps] : measured_.steps) {
      if (const auto step = steps.find(number); step != steps.end()) {
        begin = std::min(begin, step->second.start);
        end = std::max(end, step->second.end);
      }
    }
    const auto measured = actions_by_rank(measured_, number, ranks);
    begin = begin_of(measured, begin, previous_end);
    previous_end = end;
    Json memory = Json::array();
    for (int rank = 0; rank < ranks; ++rank) {
      memory.push_back(memory_of(of_rank(memory_, rank), begin, end));
    }
    Json step{{"epoch", number.first},
              {"step", number.second},
              {"eighths", eighths(end, begin)},
              {"measured", json_of(measured, begin)},
              {"predicted", json_of(actions_by_rank(predicted_, number, ranks), begin)},
              {"arrivals", arrivals_of(measured_, number, begin)},
              {"predicted_arrivals", arrivals_of(predicted_, number, begin)},
              {"memory", std::move(memory)}};
    size += step.dump().size();
    if (size > max_bytes) {
      break;
    }
    trace["steps"].push_back(std::move(step));
  }
  if (trace["steps"].empty()) {
    trace["omitted"] = "a step has too many actions for a report; open trace.json at https://ui.perfetto.dev";
  }
  return trace;
}

}  // namespace

nlohmann::json no_trace_steps(const std::string& reason) {
  return {{"ranks", 0}, {"omitted", reason}, {"predicted_links", Json::array()}, {"steps", Json::array()}};
}

nlohmann::json trace_steps(const std::filesystem::path& file, std::size_t max_bytes) {
  constexpr const char* kAdvice = "remove the file for a report without timelines, or run the program again";
  std::error_code unreadable;
  const auto size = std::filesystem::file_size(file, unreadable);
  if (unreadable || size > kMaxFile) {
    return no_trace_steps(unreadable ? "the run has no trace.json"
                                     : "trace.json has more than 64 MiB; open it at https://ui.perfetto.dev");
  }
  const auto trace = parse_json<Json>(read_text(file, kAdvice), file.string(), kAdvice);
  try {
    return TraceReader(trace).steps(max_bytes);
  } catch (const Json::exception& error) {
    throw DataError(
        fmt::format("{}: expected a trace of a run, got another file ({}); {}", file.string(), error.what(), kAdvice));
  }
}

}  // namespace stagecoach
