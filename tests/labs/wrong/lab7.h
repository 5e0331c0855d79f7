#pragma once
/// @file
/// Wrong answers to lab 7.

#include "tests/labs/lab7.h"
#include "tests/labs/wrong.h"

namespace stagecoach::labs::lab7 {

std::vector<WrongAnswer<Answer>> wrong_answers();

}  // namespace stagecoach::labs::lab7
