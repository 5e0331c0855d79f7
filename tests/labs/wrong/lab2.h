#pragma once
/// @file
/// Wrong answers to lab 2.

#include <vector>

#include "tests/labs/lab2.h"
#include "tests/labs/wrong.h"

namespace stagecoach::labs::lab2 {

std::vector<WrongAnswer<Answer>> wrong_answers();

}  // namespace stagecoach::labs::lab2
