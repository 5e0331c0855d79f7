#include "chapters/compare/options.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include "chapters/common/flags.h"
#include "chapters/compare/run_names.h"
#include "core/base/throw_if.h"
#include "parallel/training/run_files.h"

namespace stagecoach {
namespace {

/// Returns the indices of the baselines in `runs`, ascending. A single one that is not among them is inserted as the
/// first run.
std::vector<std::size_t> indices_of_baselines(const std::vector<std::string>& baselines,
                                              std::vector<std::string>& runs) {
  std::set<std::size_t> indices;
  for (const std::string& baseline : baselines) {
    const auto found =
        std::find_if(runs.begin(), runs.end(), [&](const std::string& run) { return is_same_run(run, baseline); });
    if (found != runs.end()) {
      indices.insert(static_cast<std::size_t>(found - runs.begin()));
    } else if (baselines.size() > 1) {
      throw UsageError(fmt::format(
          "--baseline {}: several baselines must be among the runs; name it as a RUN too, before those that "
          "are compared with it",
          baseline));
    } else {
      runs.insert(runs.begin(), baseline);
    }
  }
  return indices.empty() ? std::vector<std::size_t>{0} : std::vector(indices.begin(), indices.end());
}

/// Throws UsageError for a file to write that is one of a run, or that another flag writes.
void require_free(const CompareOptions& options) {
  throw_if<UsageError>(!options.svg.empty() && options.svg == options.html,
                       "--svg and --html: expected two files, got {} for both", options.svg);
  std::error_code absent;
  for (const auto& [flag, file] : {std::pair{"--svg", options.svg}, {"--html", options.html}}) {
    for (const std::string& run : options.runs) {
      bool is_taken = std::filesystem::is_regular_file(run, absent) && std::filesystem::equivalent(file, run, absent);
      for (const char* name : run_files::kAll) {
        is_taken |= name != std::string_view(run_files::kReport) &&
                    std::filesystem::equivalent(file, std::filesystem::path(run) / name, absent);
      }
      throw_if<UsageError>(!file.empty() && is_taken, "{}: {} is a file of the run {}; name another one", flag, file,
                           run);
    }
  }
}

}  // namespace

CompareOptions parse_compare_options(int argc, const char* const* argv) {
  const auto is_given = [](const std::string& path) { return path.empty() ? "is empty; give a run or file" : ""; };
  CompareOptions options;
  std::vector<std::string> baselines;
  CLI::App app("Compares the epoch times, idle shares, memory and losses of runs, or the steps of plans.", kCompare);
  app.footer(
      "The exit code is 2 if the runs did different work and cannot be compared.\n\nExample:\n  compare runs/one "
      "runs/gpipe runs/1f1b --svg comparison.svg");
  app.add_option(
         "RUN", options.runs,
         "The --out folder of a run or of a plan (--explain), its metrics.jsonl, or a text log with epoch lines")
      ->required()
      ->check(is_given);
  app.add_option(
         "--baseline", baselines,
         "Run that the others are compared with (default: the first RUN). If given several times, each applies to "
         "the runs from it up to the next one")
      ->allow_extra_args(false)
      ->check(is_given);
  app.add_option("--svg", options.svg, "Draw times, speed-up, idle share, memory and losses to this file")
      ->check(is_given);
  app.add_option("--html", options.html,
                 "Write a report to this file: a page that needs no network, with timelines, idle time, memory, links "
                 "and curves")
      ->check(is_given);
  const auto form = [&](TableForm which) { return [&, which] { options.form = which; }; };
  app.add_flag_callback("--wide", form(TableForm::wide), "Print all columns (default: as many as fit 100 characters)");
  app.add_flag_callback("--markdown", form(TableForm::markdown), "Print the table as Markdown, with all columns");
  parse_command_line(app, argc, argv);
  options.baselines = indices_of_baselines(baselines, options.runs);
  require_free(options);
  return options;
}

}  // namespace stagecoach
