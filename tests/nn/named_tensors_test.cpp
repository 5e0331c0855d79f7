#include "nn/named_tensors.h"

#include "core/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::same_bytes;

TEST(CopyByName, PairsNamesWhateverTheOrder) {
  const NamedTensors from{{"b", Tensor::full({2}, 2)}, {"a", Tensor::full({1}, 1)}};
  const NamedTensors into{{"a", Tensor::zeros({1})}, {"b", Tensor::zeros({2})}};
  copy_by_name(from, into, "test");
  EXPECT_TRUE(same_bytes(into[0].second, from[1].second));
  EXPECT_TRUE(same_bytes(into[1].second, from[0].second));
}

TEST(CopyByName, ListsEveryFaultAndChangesNothing) {
  const NamedTensors from{
      {"fits", Tensor::full({1}, 1)}, {"shape", Tensor::full({2}, 1)}, {"type", Tensor::full({1}, 1, DType::float64)},
      {"odd", Tensor::full({1}, 1)},  {"twice", Tensor::full({1}, 1)}, {"twice", Tensor::full({1}, 2)}};
  const NamedTensors into{{"fits", Tensor::zeros({1})},
                          {"shape", Tensor::zeros({3})},
                          {"type", Tensor::zeros({1})},
                          {"gone", Tensor::zeros({1})},
                          {"twice", Tensor::zeros({1})}};
  EXPECT_TRUE(fails_with<DataError>({"the test does not match", "differs: shape", "differs: type", "missing: gone",
                                     "unexpected: odd", "duplicate: twice"},
                                    [&] { copy_by_name(from, into, "the test"); }));
  for (const auto& [name, tensor] : into) {
    EXPECT_TRUE(same_bytes(tensor, Tensor::zeros(tensor.shape()))) << name;
  }
}

TEST(CopyByName, FaultsTakeOneLine) {
  const NamedTensors into{{"a", Tensor::zeros({1})}, {"b", Tensor::zeros({1})}};
  try {
    copy_by_name({}, into, "the test");
    FAIL() << "nothing was thrown";
  } catch (const DataError& error) {
    EXPECT_STREQ(error.what(),
                 "the test does not match, nothing was changed: missing: a float32[1]; missing: b float32[1]");
  }
}

TEST(Below, TakesThePrefixAway) {
  const NamedTensors all{
      {"a.b", Tensor::full({1}, 1)}, {"ab.c", Tensor::full({1}, 2)}, {"a.a.d", Tensor::full({1}, 3)}};
  const NamedTensors found = below("a.", all);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].first, "b");
  EXPECT_TRUE(same_bytes(found[0].second, all[0].second));
  EXPECT_EQ(found[1].first, "a.d");
  EXPECT_TRUE(same_bytes(found[1].second, all[2].second));
  EXPECT_TRUE(below("b", all).empty());
}

}  // namespace
}  // namespace stagecoach
