/// @file
/// Sets runs beside each other: how long an epoch takes, how much faster that is than a baseline, how much faster it
/// could be, and what each rank needs of memory. It reads what the chapters write, and logs of other frameworks that
/// print the same lines.

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
#include "chapters/compare/plot.h"
#include "chapters/compare/run_names.h"
#include "chapters/compare/table.h"
#include "core/error.h"

namespace stagecoach {
namespace {

constexpr const char* kProgram = "compare";

struct Wishes {
  std::vector<std::string> runs;
  std::string baseline;
  std::string svg;
  bool markdown = false;
};

/// The command line; none after --help was shown.
std::optional<Wishes> parse(int argc, const char* const* argv) {
  Wishes wishes;
  CLI::App app("Compares the epoch times, idle shares, memory and losses of runs.", kProgram);
  app.footer(
      "Exit code 2 if runs did not do the same work and so cannot be compared.\n\nExample:\n  "
      "compare runs/one runs/gpipe runs/1f1b --svg comparison.svg");
  app.add_option("RUN", wishes.runs, "The --out folder of a run, its metrics.jsonl, or a text log with epoch lines")
      ->required()
      ->check([](const std::string& run) { return run.empty() ? "is empty; name a run" : ""; });
  app.add_option("--baseline", wishes.baseline, "The run that the others are set against (the first RUN)");
  app.add_option("--svg", wishes.svg, "Draw epoch times and losses into this file");
  app.add_flag("--markdown", wishes.markdown, "Print the table as Markdown");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help() << std::flush;
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    throw UsageError(fmt::format("{}; {} --help lists the flags", error.what(), kProgram));
  }
  for (const auto& [flag, value] : {std::pair("--baseline", wishes.baseline), std::pair("--svg", wishes.svg)}) {
    if (app.count(flag) > 0 && value.empty()) {
      throw UsageError(fmt::format("{} is empty; name a {}", flag, flag == std::string("--svg") ? "file" : "run"));
    }
  }
  return wishes;
}

/// The baseline's place among the runs. One that is not among them becomes the first.
std::size_t place_baseline(Wishes& wishes) {
  if (wishes.baseline.empty()) {
    return 0;
  }
  for (std::size_t i = 0; i < wishes.runs.size(); ++i) {
    if (is_same_run(wishes.runs[i], wishes.baseline)) {
      return i;
    }
  }
  wishes.runs.insert(wishes.runs.begin(), wishes.baseline);
  return 0;
}

int run(int argc, const char* const* argv) {
  std::optional<Wishes> wishes = parse(argc, argv);
  if (!wishes) {
    return 0;
  }
  const std::size_t baseline = place_baseline(*wishes);
  std::vector<RunRecord> records;
  for (const std::string& path : wishes->runs) {
    records.push_back(read_run(path));
  }
  const Comparison comparison = compare(records, baseline);
  if (!wishes->svg.empty()) {
    write_text(wishes->svg, plot_svg(comparison));
  }
  fmt::print("{}", comparison_table(comparison, wishes->markdown ? TableForm::markdown : TableForm::plain));
  for (const std::string& note : comparison.notes) {
    fmt::print("note: {}\n", note);
  }
  std::fflush(stdout);  // so that the reasons stand below the table
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
