#include "nn/residual_blocks.h"

#include "core/autograd/backward.h"
#include "core/ops.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::random_tensor;
using test::same_bytes;

class ResidualBlocks : public testing::TestWithParam<Device> {
 protected:
  static Tensor random(const Shape& shape) { return random_tensor(shape, "x", DType::float32, GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Devices, ResidualBlocks, testing::ValuesIn(test::devices()), test::device_name);

TEST_P(ResidualBlocks, KeepTheShapeWithAPlainShortcut) {
  BasicBlock block(4, 4, 1);
  EXPECT_EQ(block.children().size(), 4U);
  block.materialize(1, GetParam());
  EXPECT_EQ(block.forward(random({2, 4, 6, 6})).shape(), (Shape{2, 4, 6, 6}));
}

TEST_P(ResidualBlocks, ProjectWhereTheShapeChanges) {
  BasicBlock block(4, 8, 2);
  block.materialize(1, GetParam());
  EXPECT_EQ(block.named_parameters()[6].first, "shortcut.conv.weight");
  EXPECT_EQ(block.named_parameters()[6].second.shape(), (Shape{8, 4, 1, 1}));
  EXPECT_EQ(block.named_buffers().back().first, "shortcut.bn.running_var");
  EXPECT_EQ(block.forward(random({2, 4, 7, 7})).shape(), (Shape{2, 8, 4, 4}));
}

TEST_P(ResidualBlocks, QuadrupleTheWidthOfABottleneck) {
  Bottleneck block(8, 4, 2);
  block.materialize(1, GetParam());
  EXPECT_EQ(block.forward(random({2, 8, 6, 6})).shape(), (Shape{2, 16, 3, 3}));
  Bottleneck plain(16, 4, 1);
  EXPECT_EQ(plain.children().size(), 6U);  // without a shortcut
}

/// With all batch norm weights 0 the block's own path gives 0, and relu of the shortcut remains.
TEST_P(ResidualBlocks, AddTheirInput) {
  BasicBlock block(2, 2, 1);
  block.materialize(1, GetParam());
  for (const auto& [name, tensor] : block.named_parameters()) {
    if (name == "bn2.weight") {
      Tensor weight = tensor;
      weight.fill(0);
    }
  }
  const Tensor x = random({1, 2, 3, 3});
  EXPECT_TRUE(same_bytes(block.forward(x), relu(x)));
}

TEST_P(ResidualBlocks, SendGradientsToEveryParameter) {
  BasicBlock block(2, 4, 2);
  block.materialize(1, GetParam());
  const Tensor y = block.forward(random({2, 2, 4, 4}));
  backward(y, random(y.shape()));
  for (const auto& [name, tensor] : block.named_parameters()) {
    EXPECT_TRUE(tensor.grad().defined()) << name;
  }
}

}  // namespace
}  // namespace stagecoach
