#pragma once
/// @file
/// Wrong answers to lab 9.

#include "tests/labs/lab9.h"
#include "tests/labs/wrong.h"

namespace stagecoach::labs::lab9 {

std::vector<WrongAnswer<Answer>> wrong_answers();

}  // namespace stagecoach::labs::lab9
