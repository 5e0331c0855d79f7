#pragma once
/// @file
/// Wrong answers to lab 3.

#include <vector>

#include "tests/labs/lab3.h"
#include "tests/labs/wrong.h"

namespace stagecoach::labs::lab3 {

std::vector<WrongAnswer<Answer>> wrong_answers();

}  // namespace stagecoach::labs::lab3
