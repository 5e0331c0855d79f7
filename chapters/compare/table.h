#pragma once
/// @file
/// Prints a comparison as a table for people.

#include <string>

#include "chapters/compare/comparison.h"

namespace stagecoach {

enum class TableForm { plain, markdown };

/// Returns a table with a heading and one row per run, followed by the meaning of the columns. Unknown values are "-".
/// The plain form aligns the columns; the Markdown form is for docs/measurements.
std::string comparison_table(const Comparison& comparison, TableForm form);

}  // namespace stagecoach
