#pragma once
/// @file
/// Numbers that are compared exactly, with what other numbers would mean.

#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace stagecoach::labs {

using Values = std::vector<float>;
/// Returns factor * values.
Values scaled(Values values, float factor);

/// What other values would mean: "the sum divided by the number of ranks".
using Mistakes = std::vector<std::pair<Values, std::string>>;

/// Throws Failed unless `got` is `expected`, exactly. Says which mistake it is, or the first number that differs.
void require_equal(const Values& expected, const Tensor& got, const std::string& what, const std::string& look_at,
                   const Mistakes& mistakes = {});

}  // namespace stagecoach::labs
