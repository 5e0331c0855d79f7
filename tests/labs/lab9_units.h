#pragma once
/// @file
/// The checks of part 2 of lab 9: the weights and gradients of a unit.

#include "tests/labs/lab9.h"

namespace stagecoach::labs::lab9 {

void weights_come_and_go(const Answer& answer);
void graph_uses_them_again(const Answer& answer);
void reduce_adds_sums(const Answer& answer);
void reduce_frees_gradients(const Answer& answer);

}  // namespace stagecoach::labs::lab9
