#pragma once
/// @file
/// What `compare` does with a run that it has read.

#include <string>

#include "chapters/compare/comparison.h"
#include "chapters/compare/run_record.h"
#include "tests/fuzz/target.h"

namespace stagecoach::fuzz {

inline RunRecord run_called(const std::string& path) {
  RunRecord run;
  run.path = path;
  return run;
}

inline const RunRecord& good_run() {
  static const RunRecord run = [] {
    RunRecord good = run_called("good");
    for (const std::int64_t epoch : {1, 2, 3}) {
      EpochRecord record;
      record.epoch = epoch;
      record.loss = 2.0 / static_cast<double>(epoch);
      record.seconds = 1.5;
      record.images_per_second = 1000;
      good.epochs.push_back(record);
    }
    return good;
  }();
  return run;
}

/// Each is the baseline for about half of the inputs, as most of the time goes into tables and figures. A run without
/// epochs is refused before (run_record.h).
inline void compare_with_good_run(const RunRecord& run) {
  if (run.epochs.empty()) {
    return;
  }
  const std::size_t baseline = run.epochs.size() % 2;
  const Comparison comparison = compare({good_run(), run}, {baseline});
  require(!comparison_table(comparison, TableForm::plain).empty(), "the table is empty");
  require(!comparison_table(comparison, TableForm::wide).empty(), "the table is empty");
  require(!comparison_table(comparison, TableForm::markdown).empty(), "the table is empty");
  const std::string svg = plot_svg(comparison);
  require(svg.find("</svg>") != std::string::npos, "the figure is not whole");
  for (const char* wrong : {"\"nan\"", "\"-nan\"", "\"inf\"", "\"-inf\""}) {
    require(svg.find(wrong) == std::string::npos, "the figure has a coordinate that is not finite");
  }
}

}  // namespace stagecoach::fuzz
