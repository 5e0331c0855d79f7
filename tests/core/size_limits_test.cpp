// Sizes that cannot be: they must be refused, not wrapped round to small ones.

#include <gtest/gtest.h>

#include <limits>
#include <memory>

#include "core/allocator.h"
#include "core/autograd/backward.h"
#include "core/ops.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::fails_with;

constexpr std::int64_t kHuge = std::int64_t{1} << 62;

/// Has nothing to give, and must never be asked for less than a tensor needs.
class NoMemory final : public MemorySource {
 public:
  explicit NoMemory(std::size_t needed) : needed_(needed) {}
  void* allocate(std::size_t bytes) override {
    EXPECT_GE(bytes, needed_) << "rounding up has wrapped round";
    return nullptr;
  }
  void deallocate(void*) override {}

 private:
  std::size_t needed_;
};

TEST(SizeLimits, AllocatorDoesNotWrapRound) {
  for (const std::size_t less : {0U, 1U, 63U, 64U, 100U, 1U << 20}) {
    const std::size_t bytes = std::numeric_limits<std::size_t>::max() - less;
    Allocator memory(std::make_unique<NoMemory>(bytes), "test");
    EXPECT_TRUE(fails_with({"test"}, [&] { memory.allocate(bytes); })) << bytes << " bytes";
  }
}

TEST(SizeLimits, ATensorWhoseBytesDoNotFitIsRefused) {
  EXPECT_TRUE(fails_with({"4611686018427387904"}, [] { Tensor::empty({kHuge}); }));
}

TEST(SizeLimits, AShapeWhoseElementsDoNotFitIsRefused) {
  EXPECT_TRUE(fails_with({"4611686018427387904"}, [] { Tensor::empty({kHuge, 4}); }));
}

TEST(SizeLimits, FlattenTakesAnEmptyBatch) { EXPECT_EQ(flatten(Tensor::zeros({0, 3, 2, 2})).shape(), (Shape{0, 12})); }

TEST(SizeLimits, WindowsNeedAtLeastOneElement) {
  EXPECT_TRUE(fails_with({"conv2d", "[1, 1, 0, 0]"}, [] {
    conv2d(Tensor::zeros({1, 1, 3, 3}), Tensor::zeros({1, 1, 0, 0}));
  }));
  EXPECT_TRUE(fails_with({"max_pool2d", "[1, 1, 0, 2]"}, [] { max_pool2d(Tensor::zeros({1, 1, 0, 2}), {2, 2, 1}); }));
  EXPECT_TRUE(fails_with({"global_average_pool", "[1, 1, 0, 2]"}, [] {
    global_average_pool(Tensor::zeros({1, 1, 0, 2}));
  }));
}

TEST(SizeLimits, ViewsDoNotWrapRound) {
  const Tensor x = Tensor::zeros({4});
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  EXPECT_TRUE(fails_with({"narrow", "[4]"}, [&] { x.narrow(kMax, 1); }));
  EXPECT_TRUE(fails_with({"9223372036854775807"}, [&] { x.narrow(1, kMax); }));
  EXPECT_TRUE(fails_with({"alias"}, [&] { x.alias({1}, kHuge); })) << "its bytes, not its elements, wrap round";
  EXPECT_TRUE(fails_with({"alias"}, [&] { x.alias({1}, kMax); }));
}

// The last part of an uneven batch may be empty: it must add nothing, and do no harm.
TEST(SizeLimits, LinearTakesAnEmptyBatch) {
  for (const std::int64_t inputs : {3, 40}) {  // less and more than a vector
    Tensor x = Tensor::zeros({0, inputs}).set_requires_grad(true);
    Tensor weight = Tensor::full({4, inputs}, 1).set_requires_grad(true);
    Tensor bias = Tensor::full({4}, 1).set_requires_grad(true);
    const Tensor y = linear(x, weight, bias);
    EXPECT_EQ(y.shape(), (Shape{0, 4}));
    backward(y, Tensor::zeros({0, 4}));
    EXPECT_EQ(x.grad().shape(), x.shape());
    EXPECT_TRUE(test::same_bytes(weight.grad(), Tensor::zeros({4, inputs})));
    EXPECT_TRUE(test::same_bytes(bias.grad(), Tensor::zeros({4})));
  }
}

TEST(SizeLimits, Conv2dTakesAnEmptyBatch) {
  Tensor x = Tensor::zeros({0, 2, 4, 4}).set_requires_grad(true);
  Tensor weight = Tensor::full({3, 2, 3, 3}, 1).set_requires_grad(true);
  const Tensor y = conv2d(x, weight);
  EXPECT_EQ(y.shape(), (Shape{0, 3, 2, 2}));
  backward(y, Tensor::zeros({0, 3, 2, 2}));
  EXPECT_EQ(x.grad().shape(), x.shape());
  EXPECT_TRUE(test::same_bytes(weight.grad(), Tensor::zeros({3, 2, 3, 3})));
}

TEST(SizeLimits, LinearTakesAWeightWithoutOutputs) {
  EXPECT_EQ(linear(Tensor::zeros({2, 3}), Tensor::zeros({0, 3})).shape(), (Shape{2, 0}));
}

TEST(SizeLimits, BatchNormNeedsChannels) {
  const Tensor none = Tensor::zeros({0});
  EXPECT_TRUE(fails_with({"batch_norm", "[2, 0]"}, [&] { batch_norm(Tensor::zeros({2, 0}), none, none, none, none); }));
}

}  // namespace
}  // namespace stagecoach
