#include "chapters/compare/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "chapters/compare/comparable.h"
#include "chapters/compare/median.h"
#include "chapters/compare/run_names.h"
#include "core/printable.h"

namespace stagecoach {
namespace {

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
  s.ranks = ranks_of(run, s.peak_bytes);
  const auto ideal_idle = median_of(run, [](const EpochRecord& e) { return e.ideal_idle; });
  if (s.ranks && ideal_idle) {
    s.ideal_speed_up = static_cast<double>(*s.ranks) * (1 - *ideal_idle);
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
  for (std::size_t i = 0; i < runs.size(); ++i) {
    comparison.runs.push_back(summarize(runs[i], names[i]));
  }
  for (std::size_t i = 0; i < runs.size(); ++i) {
    compare_with_baseline(runs, i, comparison);
  }
  for (const std::size_t baseline : baselines) {
    const auto& ranks = comparison.runs[baseline].ranks;
    if (ranks && *ranks > 1) {
      comparison.notes.push_back(
          fmt::format("the speed-up is over {} with its {} ranks, but the ideal speed-up is over one device",
                      names[baseline], *ranks));
    }
  }
  return comparison;
}

}  // namespace stagecoach
