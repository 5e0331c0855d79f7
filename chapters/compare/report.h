#pragma once
/// @file
/// The report of one or several runs: a page of one file that opens in any browser, without a network, and prints.

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "chapters/compare/comparison.h"
#include "chapters/compare/run_record.h"

namespace stagecoach {

/// What epochs and steps in a report may take, in bytes of JSON; the page and everything else take less than 100 kB.
/// All epochs are there, however many, and of the steps what still fits.
inline constexpr std::size_t kReportSteps = 250'000;

/// Returns what the report shows of `runs`, which `comparison` compares, as JSON: the modules in docs/report draw it.
/// Of each run's trace, it has the first steps that fit. Throws UsageError for plans, and DataError for a trace.json
/// that is damaged.
std::string report_facts(const std::vector<RunRecord>& runs, const Comparison& comparison);

/// Returns the page with these facts.
std::string report_html(const std::string& facts);

/// Writes report.html, with the run in `folder` alone, to this folder.
void write_report(const std::filesystem::path& folder);

}  // namespace stagecoach
