/// @file
/// Compares runs: how long an epoch takes, how much faster it is than in a baseline, how much faster it could be, and
/// how much memory each rank needs. Reads what the chapters write, and logs of other frameworks with the same lines.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string>
#include <vector>

#include "chapters/common/program.h"
#include "chapters/compare/comparison.h"
#include "chapters/compare/options.h"
#include "chapters/compare/report.h"
#include "core/base/text_file.h"

namespace stagecoach {
namespace {

int run(int argc, const char* const* argv) {
  const CompareOptions options = parse_compare_options(argc, argv);
  std::vector<RunRecord> records;
  std::transform(options.runs.begin(), options.runs.end(), std::back_inserter(records), read_run);
  const Comparison comparison = compare(records, options.baselines);
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
    std::fputs(fmt::format("{}: {}\n", kCompare, reason).c_str(), stderr);
  }
  return comparison.reasons.empty() ? 0 : 2;
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) {
  return stagecoach::run_program(stagecoach::kCompare, [&] { return stagecoach::run(argc, argv); });
}
