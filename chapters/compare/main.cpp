/// @file
/// Compares runs: how long an epoch takes, how much faster it is than in a baseline, how much faster it could be, and
/// how much memory each rank needs. Reads what the chapters write, and logs of other frameworks with the same lines.

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chapters/common/flags.h"
#include "chapters/common/program.h"
#include "chapters/compare/comparison.h"
#include "chapters/compare/report.h"
#include "chapters/compare/run_names.h"
#include "core/base/error.h"
#include "core/base/text_file.h"
#include "core/base/throw_if.h"
#include "parallel/training/run_files.h"

namespace stagecoach {
namespace {

constexpr const char* kProgram = "compare";

struct Options {
  std::vector<std::string> runs;
  std::vector<std::string> baselines;
  std::string svg;
  std::string html;
  TableForm form = TableForm::plain;
};

Options parse(int argc, const char* const* argv) {
  const auto is_given = [](const std::string& path) { return path.empty() ? "is empty; give a run or file" : ""; };
  Options options;
  CLI::App app("Compares the epoch times, idle shares, memory and losses of runs, or the steps of plans.", kProgram);
  app.footer(
      "The exit code is 2 if the runs did different work and cannot be compared.\n\nExample:\n  compare runs/one "
      "runs/gpipe runs/1f1b --svg comparison.svg");
  app.add_option(
         "RUN", options.runs,
         "The --out folder of a run or of a plan (--explain), its metrics.jsonl, or a text log with epoch lines")
      ->required()
      ->check(is_given);
  app.add_option(
         "--baseline", options.baselines,
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
  return options;
}

/// Returns the indices of the baselines in `options.runs`, ascending. A single one that is not among them is inserted
/// as the first run.
std::vector<std::size_t> indices_of_baselines(Options& options) {
  std::set<std::size_t> indices;
  for (const std::string& baseline : options.baselines) {
    const auto found = std::find_if(options.runs.begin(), options.runs.end(),
                                    [&](const std::string& run) { return is_same_run(run, baseline); });
    if (found != options.runs.end()) {
      indices.insert(static_cast<std::size_t>(found - options.runs.begin()));
    } else if (options.baselines.size() > 1) {
      throw UsageError(fmt::format(
          "--baseline {}: several baselines must be among the runs; name it as a RUN too, before those that "
          "are compared with it",
          baseline));
    } else {
      options.runs.insert(options.runs.begin(), baseline);
    }
  }
  return indices.empty() ? std::vector<std::size_t>{0} : std::vector(indices.begin(), indices.end());
}

/// Throws UsageError for a file to write that is one of a run, or that another flag writes.
void require_free(const Options& options) {
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

int run(int argc, const char* const* argv) {
  Options options = parse(argc, argv);
  require_free(options);
  const std::vector<std::size_t> baselines = indices_of_baselines(options);
  std::vector<RunRecord> records;
  std::transform(options.runs.begin(), options.runs.end(), std::back_inserter(records), read_run);
  const Comparison comparison = compare(records, baselines);
  if (!options.svg.empty()) {
    write_text(options.svg, plot_svg(comparison));
  }
  if (!options.html.empty()) {
    write_text(options.html, report_html(report_facts(records, comparison)));
  }
  fmt::print("{}", comparison_table(comparison, options.form));
  for (const std::string& note : comparison.notes) {
    fmt::print("note: {}\n", note);
  }
  std::fflush(stdout);  // so that the reasons appear after the table
  for (const std::string& reason : comparison.reasons) {
    std::fputs(fmt::format("{}: {}\n", kProgram, reason).c_str(), stderr);
  }
  return comparison.reasons.empty() ? 0 : 2;
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) {
  return stagecoach::run_program(stagecoach::kProgram, [&] { return stagecoach::run(argc, argv); });
}
