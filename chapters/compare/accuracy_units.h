#pragma once
/// @file
/// Some programs print accuracies as shares (0.26), others in percent (26).

#include <string>
#include <vector>

#include "chapters/compare/run_record.h"

namespace stagecoach {

/// Converts the accuracies of one run, which were given without a unit, into shares: if they are above 1, they are
/// percentages, and a note in `run` says so. Throws DataError, which begins with `where`, if some are above 1 and
/// others from there down to 0, which says nothing about the unit of either, or if one is neither a share nor a
/// percentage. NaN and 0 are the same in both.
void convert_percentages(const std::vector<double*>& accuracies, const std::string& where, RunRecord& run);

}  // namespace stagecoach
