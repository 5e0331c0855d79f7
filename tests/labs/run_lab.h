#pragma once
/// @file
/// The main function of a lab's grader.

#include <functional>
#include <string>
#include <vector>

#include "tests/labs/grading.h"

namespace stagecoach::labs {

/// Grades the answer that this program is linked with, and prints the report and "lab 3: 70 of 100 points". `criteria`
/// is called once the flags are read. Returns the exit code: 0 with full points, otherwise 1; 2 for a wrong flag.
///
///     --points       the last line only
///     --draw         what `drawing` returns instead, if the lab has one
///     --seed SEED    as another class
///     --signed       for tests/labs/grade.py: reads a word from standard input, and prints a line for each criterion
///                    that begins with it, "WORD <tab> points <tab> of <tab> name" (notes: "WORD <tab> note <tab>
///                    text"), which the answer cannot forge without it
int run_lab(int argc, char** argv, int lab, const std::function<std::vector<Criterion>()>& criteria,
            const std::function<std::string()>& drawing = {});

}  // namespace stagecoach::labs
