#include "tests/labs/compared_values.h"

#include <fmt/format.h>

#include <algorithm>

#include "tests/labs/grading.h"

namespace stagecoach::labs {

Values scaled(Values values, float factor) {
  std::transform(values.begin(), values.end(), values.begin(), [factor](float value) { return factor * value; });
  return values;
}

void require_equal(const Values& expected, const Tensor& got, const std::string& what, const std::string& look_at,
                   const Mistakes& mistakes) {
  if (!got.defined() || got.numel() != static_cast<std::int64_t>(expected.size())) {
    throw Failed(fmt::format("{}: {} numbers{}", what, expected.size(), for_case()),
                 got.defined() ? describe(got) : "no tensor", look_at);
  }
  const Values values = got.to_vector<float>();
  for (const auto& [wrong, meaning] : mistakes) {
    if (values == wrong && wrong != expected) {
      throw Failed(what + for_case(), meaning, look_at);
    }
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] != expected[i]) {
      throw Failed(fmt::format("{}{}; number {} is {:.9g}", what, for_case(), i, expected[i]),
                   fmt::format("{:.9g}", values[i]), look_at);
    }
  }
}

}  // namespace stagecoach::labs
