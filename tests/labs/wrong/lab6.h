#pragma once
/// @file
/// Wrong answers to lab 6.

#include "tests/labs/lab6.h"
#include "tests/labs/wrong.h"

namespace stagecoach::labs::lab6 {

std::vector<WrongAnswer<Answer>> wrong_answers();

}  // namespace stagecoach::labs::lab6
