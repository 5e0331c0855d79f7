#pragma once
/// @file
/// The page of a report without its facts, which CMake makes from docs/report and the drawing code of docs/playground.

#include <string>

namespace stagecoach {

/// Returns the page; its facts belong where "{{facts}}" is.
const std::string& report_page();

}  // namespace stagecoach
