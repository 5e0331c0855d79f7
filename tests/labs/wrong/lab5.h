#pragma once
/// @file
/// Wrong answers to lab 5.

#include "tests/labs/lab5.h"
#include "tests/labs/wrong.h"

namespace stagecoach::labs::lab5 {

std::vector<WrongAnswer<Answer>> wrong_answers();

}  // namespace stagecoach::labs::lab5
