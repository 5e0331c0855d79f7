#pragma once
/// @file
/// A comparison as a table for people.

#include <string>

#include "chapters/compare/comparison.h"

namespace stagecoach {

enum class TableForm { plain, markdown };

/// One row per run below a heading, and then what the columns mean. Unknown values are "-". In the plain form the
/// columns line up; the Markdown form is for docs/measurements.
std::string comparison_table(const Comparison& comparison, TableForm form);

}  // namespace stagecoach
