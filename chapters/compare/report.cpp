#include "chapters/compare/report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>
#include <string>

#include "chapters/compare/coinciding_runs.h"
#include "chapters/compare/report_page.h"
#include "chapters/compare/trace_steps.h"
#include "core/base/text_file.h"
#include "core/base/throw_if.h"
#include "parallel/training/run_files.h"

namespace stagecoach {
namespace {

using Json = nlohmann::json;

template <class Value>
Json json_of(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

Json json_of(const EpochRecord& epoch) {
  return {{"steps", json_of(epoch.steps)},  {"loss", epoch.loss},  // NaN becomes null
          {"acc", json_of(epoch.accuracy)}, {"test_acc", json_of(epoch.test_accuracy)},
          {"seconds", epoch.seconds},       {"predicted_seconds", json_of(epoch.predicted_seconds)},
          {"step_parts", epoch.step_parts}};
}

Json json_of(const RunRecord& run, const RunSummary& summary, std::size_t max_bytes) {
  Json epochs = Json::array();
  for (const EpochRecord& epoch : run.epochs) {
    epochs.push_back(json_of(epoch));
  }
  const std::size_t size = epochs.dump().size();
  const EpochRecord& last = run.epochs.back();
  const auto folder = run.weights.parent_path();
  return {
      {"name", summary.name},
      {"schedule", json_of(summary.schedule)},
      {"microbatches", json_of(run.setting("microbatches"))},
      {"ranks", json_of(summary.ranks)},
      {"clock", summary.clock},
      {"speed_up", json_of(summary.speed_up)},
      {"seconds", summary.seconds},
      {"predicted_seconds", json_of(summary.predicted_seconds)},
      {"idle", json_of(summary.idle)},
      {"predicted_idle", json_of(summary.predicted_idle)},
      {"peak_bytes", summary.peak_bytes},
      {"predicted_memory", last.memory},
      {"links", last.links},
      {"delays", last.delays},
      {"command", json_of(run.setting("command"))},
      {"epochs", std::move(epochs)},
      {"trace", run.weights.empty() ? no_trace_steps("a text log has no trace")
                                    : trace_steps(folder / run_files::kTrace, max_bytes - std::min(max_bytes, size))}};
}

/// Returns the settings that differ: [{ name, values }], where a value that is not known is null.
Json differing_settings(const std::vector<RunRecord>& runs) {
  std::set<std::string> names;
  for (const RunRecord& run : runs) {
    for (const auto& [name, value] : run.settings) {
      names.insert(name);
    }
  }
  names.erase("command");  // the report shows it apart
  Json all = Json::array();
  for (const std::string& name : names) {
    Json values = Json::array();
    for (const RunRecord& run : runs) {
      values.push_back(json_of(run.setting(name)));
    }
    if (std::any_of(values.begin(), values.end(), [&](const Json& value) { return value != values.front(); })) {
      all.push_back({{"name", name}, {"values", std::move(values)}});
    }
  }
  return all;
}

/// Returns the groups of several runs whose weights are the same bytes.
Json groups_of_equal_bytes(const std::vector<RunSummary>& runs) {
  std::vector<std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto like = std::find_if(groups.begin(), groups.end(), [&](const std::vector<std::size_t>& group) {
      return has_same_bytes(runs[group.front()].weights, runs[i].weights);
    });
    like == groups.end() ? groups.push_back({i}) : like->push_back(i);
  }
  std::erase_if(groups, [](const std::vector<std::size_t>& group) { return group.size() == 1; });
  return groups;
}

}  // namespace

std::string report_facts(const std::vector<RunRecord>& runs, const Comparison& comparison) {
  throw_if<UsageError>(comparison.are_plans, "--html shows runs, and {} is a plan; leave out --html",
                       comparison.runs.front().name);
  Json facts{{"baselines", Json::array()}, {"runs", Json::array()}};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    facts["baselines"].push_back(comparison.baseline_of(i));
    facts["runs"].push_back(json_of(runs[i], comparison.runs[i], kReportSteps / runs.size()));
  }
  facts["equal_bytes"] = groups_of_equal_bytes(comparison.runs);
  facts["settings"] = differing_settings(runs);
  facts["reasons"] = comparison.reasons;
  // Those of a comparison are about speed-ups, which one run alone does not have.
  facts["notes"] = runs.size() > 1 ? comparison.notes : runs.front().notes;
  return facts.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string report_html(const std::string& facts) {
  const std::string& page = report_page();
  constexpr std::string_view kMark = "{{facts}}";
  const std::size_t at = page.find(kMark);
  std::string html = page.substr(0, at);
  for (const char letter : facts) {  // no text in the facts may end the element that holds them
    html += letter == '<' ? "\\u003c" : std::string(1, letter);
  }
  return html + page.substr(at + kMark.size());
}

void write_report(const std::filesystem::path& folder) {
  const std::vector<RunRecord> runs{read_run(folder.string())};
  write_text(folder / run_files::kReport, report_html(report_facts(runs, compare(runs, {0}))));
}

}  // namespace stagecoach
