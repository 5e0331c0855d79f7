#pragma once
/// @file
/// The numbers of a class: sizes and data that differ from class to class, so that numbers cannot be copied from
/// another year. `scripts/lab.sh new-class SEED` writes the seed into class_seed.txt.

#include <cstdint>
#include <string_view>

namespace stagecoach::labs {

/// Returns the seed of the class: that of class_seed.txt, unless set_class_seed has changed it. 0 in the repository.
std::uint64_t class_seed();
/// Replaces the seed in this process.
void set_class_seed(std::uint64_t seed);

/// Returns `lowest` for seed 0, otherwise a number from `lowest` to `highest` that depends on the seed and on `what`,
/// the name of what varies.
int varied(std::string_view what, int lowest, int highest);

}  // namespace stagecoach::labs
