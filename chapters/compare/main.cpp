/// @file
/// Compares runs: how long an epoch takes, how much faster it is than in a baseline, how much faster it could be, and
/// how much memory each rank needs. It reads the output of the chapters, and logs of other frameworks that print the
/// same lines.

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chapters/common/exit_code.h"
#include "chapters/common/run_folder.h"
#include "chapters/compare/comparison.h"
#include "chapters/compare/run_names.h"
#include "core/throw_if.h"

namespace stagecoach {
namespace {

constexpr const char* kProgram = "compare";

struct Options {
  std::vector<std::string> runs;
  std::string baseline;
  std::string svg;
  bool markdown = false;
};

/// Parses the command line. Returns nothing after printing --help.
std::optional<Options> parse(int argc, const char* const* argv) {
  Options options;
  CLI::App app("Compares the epoch times, idle shares, memory and losses of runs.", kProgram);
  app.footer(
      "The exit code is 2 if the runs did different work and cannot be compared.\n\nExample:\n  compare runs/one "
      "runs/gpipe runs/1f1b --svg comparison.svg");
  app.add_option("RUN", options.runs, "The --out folder of a run, its metrics.jsonl, or a text log with epoch lines")
      ->required()
      ->check([](const std::string& run) { return run.empty() ? "is empty; give a run" : ""; });
  app.add_option("--baseline", options.baseline, "Run that the others are compared with (default: the first RUN)");
  app.add_option("--svg", options.svg, "Draw times, speed-up, idle share, memory and losses to this file");
  app.add_flag("--markdown", options.markdown, "Print the table as Markdown");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help() << std::flush;
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    throw UsageError(fmt::format("{}; {} --help lists the flags", error.what(), kProgram));
  }
  for (const auto& [flag, value] : {std::pair("--baseline", options.baseline), std::pair("--svg", options.svg)}) {
    throw_if<UsageError>(app.count(flag) > 0 && value.empty(), "{} is empty; give a {}", flag,
                         flag == std::string("--svg") ? "file" : "run");
  }
  return options;
}

/// Returns the index of the baseline in `options.runs`. If it is not among them, it is inserted as the first run.
std::size_t index_of_baseline(Options& options) {
  if (options.baseline.empty()) {
    return 0;
  }
  for (std::size_t i = 0; i < options.runs.size(); ++i) {
    if (is_same_run(options.runs[i], options.baseline)) {
      return i;
    }
  }
  options.runs.insert(options.runs.begin(), options.baseline);
  return 0;
}

int run(int argc, const char* const* argv) {
  std::optional<Options> options = parse(argc, argv);
  if (!options) {
    return 0;
  }
  const std::size_t baseline = index_of_baseline(*options);
  std::vector<RunRecord> records;
  for (const std::string& path : options->runs) {
    records.push_back(read_run(path));
  }
  const Comparison comparison = compare(records, baseline);
  if (!options->svg.empty()) {
    write_text(options->svg, plot_svg(comparison));
  }
  fmt::print("{}", comparison_table(comparison, options->markdown ? TableForm::markdown : TableForm::plain));
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
  return stagecoach::with_exit_code(stagecoach::kProgram, [&] { return stagecoach::run(argc, argv); });
}
