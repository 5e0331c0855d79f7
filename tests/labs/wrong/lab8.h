#pragma once
/// @file
/// Wrong answers to lab 8.

#include "tests/labs/lab8.h"
#include "tests/labs/wrong.h"

namespace stagecoach::labs::lab8 {

std::vector<WrongAnswer<Answer>> wrong_answers();

}  // namespace stagecoach::labs::lab8
