#include "chapters/compare/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

#include "chapters/compare/run_names.h"
#include "core/base/median.h"
#include "core/base/printable.h"
#include "core/base/throw_if.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

/// Returns "wall", "virtual", "modelled", or "mixed" if the run changed its clock.
std::string clock_of(const RunRecord& run) {
  const std::string by_setting = run.setting("clock").value_or("wall");
  const auto clock = [&](const EpochRecord& epoch) { return epoch.clock.value_or(by_setting); };
  const std::string first = clock(run.epochs.front());
  const bool same = std::all_of(run.epochs.begin(), run.epochs.end(), [&](const auto& e) { return clock(e) == first; });
  return same ? first : "mixed";
}

/// Returns the number of epochs: "10", or "5 (6 to 10)" if the run does not begin with the first epoch.
std::string epochs_of(const RunRecord& run) {
  const std::int64_t first = run.epochs.front().epoch;
  const std::int64_t last = run.epochs.back().epoch;
  const auto count = static_cast<std::int64_t>(run.epochs.size());
  const bool whole = (first == 0 || first == 1) && last - first + 1 == count;  // some programs count from 0
  return whole ? std::to_string(count) : fmt::format("{} ({} to {})", count, first, last);
}

/// The result of comparing two runs.
struct Findings {
  std::vector<std::string> differences;  ///< what differs and what to do; if there are any, the runs are not comparable
  std::vector<std::string> remarks;      ///< what is unknown, only roughly checked, or good to know
};

constexpr double kImagesTolerance = 0.02;

/// Returns whether both texts are the same or name the same folder, such as "data" and "./data/".
bool is_same_data(const std::string& a, const std::string& b) {
  std::error_code not_there;
  return a == b || (fs::path(a) / "").lexically_normal() == (fs::path(b) / "").lexically_normal() ||
         fs::equivalent(a, b, not_there);
}

/// Returns the number of images in an epoch; nothing if the log does not say, or rounds its numbers too much.
std::optional<double> images_of(const RunRecord& run) {
  std::vector<double> counts;
  for (const EpochRecord& e : run.epochs) {
    const double speed = e.images_per_second.value_or(0);
    const double rounding = run.rounded ? 0.005 / e.seconds + 0.5 / speed : 0;  // of "1.83s, 27310 img/s"
    if (speed * e.seconds > 0 && rounding < kImagesTolerance / 2) {
      counts.push_back(std::round(speed * e.seconds));
    }
  }
  return median(counts);
}

/// Compares the settings that change the data or the training, one by one.
class Check {
 public:
  Check(const RunRecord& run, const RunRecord& baseline) : run_(run), baseline_(baseline) {}

  void data() {
    const auto got = run_.setting("data");
    const auto expected = baseline_.setting("data");
    const std::size_t before = findings.differences.size();
    if (got && expected && !is_same_data(*got, *expected)) {
      differs("data", *expected, *got, "train both on the same --data");
    }
    setting("smoke", "run both with --smoke or both without");
    setting("image-size", "run both with the same --image-size");
    setting("augment", "run both with --augment or both without");
    if (findings.differences.size() == before) {
      images(got && expected);
    }
  }

  void setting(const std::string& name, const std::string& advice) {
    const auto got = run_.setting(name);
    const auto expected = baseline_.setting(name);
    if (got && expected && *got != *expected) {
      differs(name, *expected, *got, advice);
    }
  }

  void differs(const std::string& what, const std::string& expected, const std::string& got,
               const std::string& advice) {
    findings.differences.push_back(fmt::format("{}: expected {}, got {}; {}", what, expected, got, advice));
  }

  Findings findings;

 private:
  /// Compares the number of images, as data of the same name may have changed, and a log without settings does not name
  /// its data.
  void images(bool data_is_known) {
    const auto got = images_of(run_);
    const auto expected = images_of(baseline_);
    if (got && expected && std::abs(*got - *expected) > kImagesTolerance * *expected) {
      differs("images per epoch", fmt::format("{:.0f}", *expected), fmt::format("{:.0f}", *got),
              "train both on the same data");
    } else if (!data_is_known && got && expected) {
      findings.remarks.push_back(fmt::format(
          "the data is not known for both runs; their images per epoch, {:.0f} and {:.0f}, agree within {:.0f}%",
          *expected, *got, 100 * kImagesTolerance));
    } else if (!data_is_known) {
      findings.remarks.emplace_back("the data is not known for both runs; check that it is the same");
    }
  }

  const RunRecord& run_;
  const RunRecord& baseline_;
};

/// Checks whether `run` did the same work as `baseline`: the same data, batch size and epochs, timed by the same clock.
Findings find_differences(const RunRecord& run, const RunRecord& baseline) {
  Check check(run, baseline);
  check.data();
  check.setting("batch-size", "run both with the same --batch-size");
  if (!run.setting("batch-size") || !baseline.setting("batch-size")) {
    check.findings.remarks.emplace_back("the batch size is not known for both runs; check that it is the same");
  }
  if (epochs_of(run) != epochs_of(baseline)) {
    check.differs("finished epochs", epochs_of(baseline), epochs_of(run), "train both for the same --epochs");
  }
  if (clock_of(run) != clock_of(baseline) || clock_of(run) == "mixed") {
    check.differs("clock", clock_of(baseline), clock_of(run),
                  "times of different clocks cannot be compared, so run both with the same --clock");
  }
  for (const char* name : {"model", "depth", "width", "heads"}) {  // allowed, to show what a larger model costs
    const auto got = run.setting(name);
    const auto expected = baseline.setting(name);
    if (got && expected && *got != *expected) {
      check.findings.remarks.push_back(
          fmt::format("{} {} instead of {}: the speed-up compares the models too", name, *got, *expected));
      break;
    }
  }
  return check.findings;
}

/// Returns the median of a figure over all epochs except the first, where it is known.
template <class Figure>
std::optional<double> median_of(const RunRecord& run, const Figure& figure) {
  std::vector<double> values;
  for (std::size_t i = run.epochs.size() > 1 ? 1 : 0; i < run.epochs.size(); ++i) {
    const std::optional<double> value = figure(run.epochs[i]);
    if (value) {
      values.push_back(*value);
    }
  }
  return median(values);
}

/// Returns the largest value of each rank over all epochs.
std::vector<std::int64_t> largest(const RunRecord& run, std::vector<std::int64_t> EpochRecord::*figures) {
  std::vector<std::int64_t> most;
  for (const EpochRecord& epoch : run.epochs) {
    const std::vector<std::int64_t>& ranks = epoch.*figures;
    most.resize(std::max(most.size(), ranks.size()));
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      most[rank] = std::max(most[rank], ranks[rank]);
    }
  }
  return most;
}

/// Returns the number of ranks from the settings or, without that setting, the number of ranks that reported memory.
std::optional<std::int64_t> ranks_of(const RunRecord& run, const std::vector<std::int64_t>& peaks) {
  const std::string text = run.setting("ranks").value_or("");
  std::int64_t ranks = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), ranks).ec == std::errc() && ranks > 0) {
    return ranks;
  }
  if (!peaks.empty()) {
    return static_cast<std::int64_t>(peaks.size());
  }
  return run.setting("program") == "ch01_single_device" ? std::optional<std::int64_t>(1) : std::nullopt;
}

std::optional<std::string> shown_setting(const RunRecord& run, const std::string& name) {
  const auto value = run.setting(name);
  return value ? std::optional(printable(*value)) : std::nullopt;
}

/// Returns a short name for what orders the work of a run: a schedule, a policy of weight versions, or a strategy of
/// data-parallel training.
std::optional<std::string> order_of(const RunRecord& run) {
  if (const auto mode = shown_setting(run, "mode")) {
    const std::string compress = shown_setting(run, "compress").value_or("none");
    const auto mesh = shown_setting(run, "mesh");
    return *mode + (compress == "none" ? "" : " " + compress) + (mesh ? " " + *mesh : "");
  }
  return shown_setting(run, run.setting("versions") ? "versions" : "schedule");
}

RunSummary summarize(const RunRecord& run, const std::string& name) {
  RunSummary s;
  s.name = name;
  s.program = shown_setting(run, "program");
  s.schedule = order_of(run);
  s.clock = printable(clock_of(run));
  s.epochs = epochs_of(run);
  s.seconds = *median_of(run, [](const EpochRecord& e) { return std::optional(e.seconds); });
  s.idle = median_of(run, [](const EpochRecord& e) { return e.idle; });
  s.predicted_idle = median_of(run, [](const EpochRecord& e) { return e.predicted_idle; });
  s.predicted_seconds = median_of(run, [](const EpochRecord& e) { return e.predicted_seconds; });
  s.peak_bytes = largest(run, &EpochRecord::peak_bytes);
  s.versions = largest(run, &EpochRecord::versions);
  s.link_bytes = run.epochs.back().link_bytes;
  s.staleness = run.epochs.back().staleness;
  s.ranks = ranks_of(run, s.peak_bytes);
  const auto ideal_idle = median_of(run, [](const EpochRecord& e) { return e.ideal_idle; });
  if (s.ranks && ideal_idle) {
    const std::int64_t masters = run.setting("form") == "remote" ? 1 : 0;  // a master only calls the ranks that compute
    s.ideal_speed_up = static_cast<double>(*s.ranks - masters) * (1 - *ideal_idle);
  }
  const std::int64_t before_first = run.epochs.front().epoch == 0 ? 1 : 0;  // some programs count from 0
  for (const EpochRecord& epoch : run.epochs) {
    s.losses.emplace_back(epoch.epoch + before_first, epoch.loss);
    if (epoch.test_accuracy) {
      s.test_accuracies.emplace_back(epoch.epoch + before_first, *epoch.test_accuracy);
    }
  }
  s.weights = run.weights;
  s.accuracy = run.epochs.back().accuracy;
  s.test_accuracy = run.epochs.back().test_accuracy;
  return s;
}

/// Records what differs between runs[i] and its baseline, and the speed-up if nothing differs.
void compare_with_baseline(const std::vector<RunRecord>& runs, std::size_t i, Comparison& comparison) {
  const std::size_t b = comparison.baseline_of(i);
  const RunSummary& baseline = comparison.runs[b];
  RunSummary& run = comparison.runs[i];
  if (i != b) {
    const Findings findings = find_differences(runs[i], runs[b]);
    for (const std::string& difference : findings.differences) {
      run.comparable = false;
      comparison.reasons.push_back(
          fmt::format("{} is not comparable with {}: {}", run.name, baseline.name, printable(difference)));
    }
    for (const std::string& remark : findings.remarks) {
      comparison.notes.push_back(fmt::format("{} compared with {}: {}", run.name, baseline.name, printable(remark)));
    }
  }
  if (run.comparable && run.seconds > 0 && baseline.seconds > 0) {
    run.speed_up = baseline.seconds / run.seconds;
  }
}

}  // namespace

std::size_t Comparison::baseline_of(std::size_t i) const {
  const auto after = std::upper_bound(baselines.begin(), baselines.end(), i);
  return after == baselines.begin() ? baselines.front() : *std::prev(after);
}

Comparison compare(const std::vector<RunRecord>& runs, const std::vector<std::size_t>& baselines) {
  std::vector<std::string> paths;
  std::transform(runs.begin(), runs.end(), std::back_inserter(paths), [](const RunRecord& run) { return run.path; });
  const std::vector<std::string> names = run_names(paths);
  Comparison comparison;
  comparison.baselines = baselines;
  comparison.are_plans = runs.front().is_plan;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    throw_if<UsageError>(runs[i].is_plan != comparison.are_plans,
                         "{} and {}: expected either runs or plans (of --explain), got one of each; compare them apart",
                         names.front(), names[i]);
    comparison.runs.push_back(summarize(runs[i], names[i]));
    for (const std::string& note : runs[i].notes) {
      comparison.notes.push_back(fmt::format("{}: {}", names[i], printable(note)));
    }
  }
  for (std::size_t i = 0; i < runs.size(); ++i) {
    compare_with_baseline(runs, i, comparison);
  }
  for (const std::size_t baseline : baselines) {
    const auto& ranks = comparison.runs[baseline].ranks;
    if (ranks && *ranks > 1 && !comparison.are_plans) {
      comparison.notes.push_back(
          fmt::format("the speed-up is over {} with its {} ranks, but the ideal speed-up is over one device",
                      names[baseline], *ranks));
    }
  }
  return comparison;
}

}  // namespace stagecoach
