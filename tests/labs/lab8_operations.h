#pragma once
/// @file
/// The checks of part 1 of lab 8: the conjugate operations f and g.

#include "tests/labs/lab8.h"

namespace stagecoach::labs::lab8 {

inline constexpr const char* kOperations =
    "chapters/08_tensor_parallel/lab/conjugate.h; chapter 8, \"One block, four all-reduces\"";
inline constexpr const char* kWrites = "scripts/lab.sh hint 8 2 1: what does all_reduce overwrite?";

void f_copies(const Answer& answer);
void g_sums(const Answer& answer);
void write_nothing(const Answer& answer);
void record_and_send_what_is_needed(const Answer& answer);

}  // namespace stagecoach::labs::lab8
