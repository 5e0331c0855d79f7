#pragma once
/// @file
/// Wrong answers to lab 4.

#include "tests/labs/lab4.h"
#include "tests/labs/wrong.h"

namespace stagecoach::labs::lab4 {

std::vector<WrongAnswer<Answer>> wrong_answers();

}  // namespace stagecoach::labs::lab4
