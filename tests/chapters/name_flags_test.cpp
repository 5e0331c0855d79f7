#include "chapters/common/name_flags.h"

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "nn/models.h"
#include "parallel/schedule/schedule_kinds.h"

namespace stagecoach {
namespace {

/// Returns the error of `body` as the user of a chapter reads it.
template <class Body>
std::string reported(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return name_flags(error.what());
  }
  return "no error";
}

TEST(NameFlags, ReplacesEveryParameterAndNothingElse) {
  EXPECT_EQ(name_flags("a `b`: 3 ranks; use `ranks` 4, clock `wall`, or more `ranks`"),
            "a `b`: 3 ranks; use --ranks 4, --clock wall, or more --ranks");
}

TEST(NameFlags, LeavesNoParameterOfAnErrorUnnamed) {
  for (const ModelSizes sizes : {ModelSizes{.depth = 1}, ModelSizes{.width = 1}, ModelSizes{.heads = 1}}) {
    const std::string text = reported([&] { make_model("convnet", {.sizes = sizes}); });
    EXPECT_NE(text.find("leave out --"), std::string::npos) << text;
    EXPECT_EQ(text.find('`'), std::string::npos) << text;
  }
  EXPECT_EQ(reported([] { make_schedule("interleaved", 4, 4, 1, 4); }),
            "interleaved with one chunk per rank has no groups: expected no --group, got 4; leave out --group, or use "
            "more --chunks");
}

}  // namespace
}  // namespace stagecoach
