#include "core/base/parse_json.h"

#include <gtest/gtest.h>

#include "tests/support/errors.h"

namespace stagecoach {
namespace {

using Json = nlohmann::json;
using Ordered = nlohmann::ordered_json;
using test::fails_with;

testing::AssertionResult is_refused(const std::string& text, const char* reason) {
  return fails_with<DataError>({"a.json ", reason, "; restore it"},
                               [&] { parse_json<Json>(text, "a.json", "restore it"); });
}

std::string nested(int depth) {
  const auto count = static_cast<std::size_t>(depth);
  return std::string(count, '[') + std::string(count, ']');
}

TEST(ParseJson, ReadsOneValueAndTheSpaceAroundIt) {
  EXPECT_EQ(parse_json<Json>(" {\"a\": [1, null, \"\\u0000\"]} \r\n\t", "text")["a"][0], 1);
  EXPECT_EQ(parse_json<Ordered>("{\"b\":1,\"a\":2}", "text").dump(), "{\"b\":1,\"a\":2}");
  EXPECT_EQ(parse_json<Json>("\xEF\xBB\xBF{}", "text"), Json::object()) << "some editors write a byte order mark";
  EXPECT_EQ(parse_json<Json>("{\"a\":{\"a\":1},\"b\":{\"a\":1}}", "text").size(), 2U) << "equal keys in two objects";
}

TEST(ParseJson, WhatFollowsTheEndIsDamage) {
  const std::string nul(1, '\0');
  for (const std::string& rest : {nul, nul + " }", " " + nul, std::string("{}"), std::string(" 1"), std::string("]"),
                                  std::string("\xEF\xBB\xBF"), std::string("// a comment")}) {
    EXPECT_TRUE(is_refused("{}" + rest, "is not valid JSON (line 1, column ")) << rest;
  }
  EXPECT_TRUE(is_refused(nul, "line 1, column 1"));
  EXPECT_TRUE(is_refused("{\n  \"a\": 1," + nul + "}", "line 2, column 10"));
  EXPECT_TRUE(is_refused("", "line 1, column 1"));
}

TEST(ParseJson, NothingIsReadInPart) {
  EXPECT_TRUE(is_refused("{\n\"a\": }", "is not valid JSON (line 2, column 6)"));
  EXPECT_TRUE(is_refused("{\"a\":1,\"\\u0061\":2}", "contains 'a' twice"));
  EXPECT_TRUE(is_refused("[{\"a\":{\"b\":1,\"b\":1}}]", "contains 'b' twice"));
  EXPECT_TRUE(is_refused("[1e999]", "a number that is out of range"));
  EXPECT_TRUE(is_refused("[\"\xff\"]", "is not valid JSON"));
  EXPECT_TRUE(is_refused("[nan]", "is not valid JSON"));
}

TEST(ParseJson, DeepNestingDoesNotExhaustTheStack) {
  EXPECT_EQ(parse_json<Json>(nested(kMaxJsonDepth), "text").dump(), nested(kMaxJsonDepth));
  EXPECT_TRUE(is_refused(nested(kMaxJsonDepth + 1), "is nested too deeply"));
  EXPECT_TRUE(is_refused(nested(1'000'000), "is nested too deeply"));
}

}  // namespace
}  // namespace stagecoach
