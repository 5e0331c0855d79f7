#pragma once
/// @file
/// Wrong answers to lab 1.

#include <vector>

#include "tests/labs/lab1.h"
#include "tests/labs/wrong.h"

namespace stagecoach::labs::lab1 {

std::vector<WrongAnswer<Answer>> wrong_answers();

}  // namespace stagecoach::labs::lab1
