#include "nn/residual_blocks.h"

#include "core/autograd/backward.h"
#include "core/ops.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::random_tensor;
using test::same_bytes;

TEST(BasicBlock, KeepsTheShapeWithAPlainShortcut) {
  BasicBlock block(4, 4, 1);
  EXPECT_EQ(block.children().size(), 4U);
  block.materialize(1);
  EXPECT_EQ(block.forward(random_tensor({2, 4, 6, 6}, "x", DType::float32)).shape(), (Shape{2, 4, 6, 6}));
}

TEST(BasicBlock, ProjectsWhereTheShapeChanges) {
  BasicBlock block(4, 8, 2);
  block.materialize(1);
  EXPECT_EQ(block.named_parameters()[6].first, "shortcut.conv.weight");
  EXPECT_EQ(block.named_parameters()[6].second.shape(), (Shape{8, 4, 1, 1}));
  EXPECT_EQ(block.named_buffers().back().first, "shortcut.bn.running_var");
  EXPECT_EQ(block.forward(random_tensor({2, 4, 7, 7}, "x", DType::float32)).shape(), (Shape{2, 8, 4, 4}));
}

TEST(Bottleneck, QuadruplesItsWidth) {
  Bottleneck block(8, 4, 2);
  block.materialize(1);
  EXPECT_EQ(block.forward(random_tensor({2, 8, 6, 6}, "x", DType::float32)).shape(), (Shape{2, 16, 3, 3}));
  Bottleneck plain(16, 4, 1);
  EXPECT_EQ(plain.children().size(), 6U);  // without a shortcut
}

/// With all batch norm weights 0 the block's own path gives 0, and relu of the shortcut remains.
TEST(BasicBlock, AddsItsInput) {
  BasicBlock block(2, 2, 1);
  block.materialize(1);
  for (const auto& [name, tensor] : block.named_parameters()) {
    if (name == "bn2.weight") {
      Tensor weight = tensor;
      weight.fill(0);
    }
  }
  const Tensor x = random_tensor({1, 2, 3, 3}, "x", DType::float32);
  EXPECT_TRUE(same_bytes(block.forward(x), relu(x)));
}

TEST(BasicBlock, SendsGradientsToEveryParameter) {
  BasicBlock block(2, 4, 2);
  block.materialize(1);
  const Tensor y = block.forward(random_tensor({2, 2, 4, 4}, "x", DType::float32));
  backward(y, random_tensor(y.shape(), "y", DType::float32));
  for (const auto& [name, tensor] : block.named_parameters()) {
    EXPECT_TRUE(tensor.grad().defined()) << name;
  }
}

}  // namespace
}  // namespace stagecoach
