#pragma once
/// @file
/// The checks of part 3 of lab 9: the order of a step.

#include "tests/labs/lab9.h"

namespace stagecoach::labs::lab9 {

inline constexpr const char* kOrder =
    "chapters/09_sharded_data_parallel/lab/step.h; figure 9.2 of chapter 9, \"The idea\"";

void gathers_ahead(const Answer& answer);
void few_units_have_weights(const Answer& answer);
void one_unit_has_gradients(const Answer& answer);
void gathers_go_first(const Answer& answer);
void last_unit_stays(const Answer& answer);
void trains_as_one_device(const Answer& answer);

}  // namespace stagecoach::labs::lab9
