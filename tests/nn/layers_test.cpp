#include "nn/layers.h"

#include <algorithm>
#include <cmath>

#include "core/autograd/grad_mode.h"
#include "core/base/error.h"
#include "core/ops.h"
#include "nn/batch_position.h"
#include "nn/transformer.h"
#include "tests/support/devices.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::random_tensor;

class Layers : public testing::TestWithParam<Device> {};
class BatchNormLayer : public testing::TestWithParam<Device> {};
INSTANTIATE_TEST_SUITE_P(Devices, Layers, testing::ValuesIn(test::devices()), test::device_name);
INSTANTIATE_TEST_SUITE_P(Devices, BatchNormLayer, testing::ValuesIn(test::devices()), test::device_name);

TEST_P(Layers, GiveTheShapesOfTheirOperations) {
  const Tensor image = random_tensor({2, 3, 8, 8}, "x", DType::float32, GetParam());
  const auto shape_of = [&](Module& layer, const Tensor& x) {
    layer.materialize(1, GetParam());
    return layer.forward(x).shape();
  };
  Linear linear(6, 4);
  Conv2d conv(3, 5, 3);
  Conv2d strided(3, 5, 3, {.stride = 2, .padding = 1}, Bias::no);
  ReLU relu;
  MaxPool2d pool(2);
  MaxPool2d padded(Window{3, 2, 1});
  GlobalAveragePool average;
  Flatten flatten;
  Softmax softmax;
  BatchNorm2d norm(3);
  EXPECT_EQ(shape_of(linear, random_tensor({2, 6}, "x", DType::float32, GetParam())), (Shape{2, 4}));
  EXPECT_EQ(shape_of(conv, image), (Shape{2, 5, 6, 6}));
  EXPECT_EQ(shape_of(strided, image), (Shape{2, 5, 4, 4}));
  EXPECT_EQ(shape_of(relu, image), image.shape());
  EXPECT_EQ(shape_of(pool, image), (Shape{2, 3, 4, 4}));
  EXPECT_EQ(shape_of(padded, image), (Shape{2, 3, 4, 4}));
  EXPECT_EQ(shape_of(average, image), (Shape{2, 3}));
  EXPECT_EQ(shape_of(flatten, image), (Shape{2, 192}));
  EXPECT_EQ(shape_of(softmax, random_tensor({2, 6}, "x", DType::float32, GetParam())), (Shape{2, 6}));
  EXPECT_EQ(shape_of(norm, image), image.shape());
}

TEST_P(Layers, EmbedTokens) {
  Embedding layer(5, 400, 0.5);
  layer.materialize(1, GetParam());
  const Tensor tokens = Tensor::from(std::vector<std::int32_t>{4, 0, 4}, {1, 3}, GetParam());
  const Tensor y = layer.forward(tokens);
  EXPECT_EQ(y.shape(), layer.output_shape({1, 3}));
  const auto values = y.to_vector<float>();
  EXPECT_TRUE(std::equal(values.begin(), values.begin() + 400, values.begin() + 800));
  double squares = 0;
  for (const float value : layer.named_parameters()[0].second.to_vector<float>()) {
    squares += static_cast<double>(value) * static_cast<double>(value);
  }
  EXPECT_NEAR(std::sqrt(squares / 2000), 0.5, 0.05);
}

TEST_P(Layers, DropOutInTrainingByThePositionOfTheBatch) {
  Dropout layer(0.5, 3, "blocks.0");
  const Tensor x = random_tensor({6, 20}, "x", DType::float32, GetParam());
  EXPECT_TRUE(fails_with<Error>({"dropout layer", "BatchScope"}, [&] { layer.forward(x); }));
  const auto at = [&](const Tensor& part, std::int64_t step, std::int64_t first) {
    const BatchScope scope(BatchPosition{step, first});
    return layer.forward(part);
  };
  const Tensor y = at(x, 1, 0);
  EXPECT_TRUE(test::same_bytes(at(x.narrow(2, 3), 1, 2), y.narrow(2, 3)));
  EXPECT_FALSE(test::same_bytes(at(x, 2, 0), y));
  layer.train(false);
  EXPECT_TRUE(test::same_bytes(layer.forward(x), x));
  EXPECT_THROW(Dropout(1, 0, "x"), UsageError);
}

TEST_P(Layers, WithoutBiasHaveOneParameter) {
  Linear linear(6, 4, Bias::no);
  Conv2d conv(3, 5, 3, {}, Bias::no);
  linear.materialize(1, GetParam());
  conv.materialize(1, GetParam());
  EXPECT_EQ(linear.named_parameters().size(), 1U);
  EXPECT_EQ(conv.named_parameters().size(), 1U);
  EXPECT_EQ(linear.forward(Tensor::zeros({1, 6}, DType::float32, GetParam())).to_vector<float>(),
            std::vector<float>(4, 0.0F));
}

TEST_P(Layers, OnlyCausalBlocksKeepEarlierTokensFromLaterOnes) {
  const Tensor earlier = random_tensor({4, 8}, "earlier", DType::float32, GetParam());
  const auto earlier_outputs = [&](AttentionMask mask, const char* last) {
    TransformerBlock block(8, 2, {}, {.mask = mask});
    block.materialize(1, GetParam());
    const Tensor x = cat({earlier, random_tensor({1, 8}, last, DType::float32, GetParam())});
    return block.forward(x.reshape({1, 5, 8})).reshape({5, 8}).narrow(0, 4).to_vector<float>();
  };
  EXPECT_EQ(earlier_outputs(AttentionMask::causal, "one"), earlier_outputs(AttentionMask::causal, "other"));
  EXPECT_NE(earlier_outputs(AttentionMask::none, "one"), earlier_outputs(AttentionMask::none, "other"));
}

TEST(LayersOfNoSize, AreRefused) {
  EXPECT_THROW(Linear(0, 4), Error);
  EXPECT_THROW(Conv2d(3, -1, 3), Error);
  EXPECT_THROW(Conv2d(3, 1, 0), Error);
  EXPECT_THROW(BatchNorm2d(0), Error);
}

/// Mean and variance (divided by the count) of one channel of [N, C, H, W].
std::pair<double, double> moments(const Tensor& x, std::int64_t channel) {
  const std::int64_t plane = x.size(2) * x.size(3);
  const auto values = x.to_vector<float>();
  double sum = 0;
  double squares = 0;
  for (std::int64_t n = 0; n < x.size(0); ++n) {
    for (std::int64_t i = 0; i < plane; ++i) {
      const double value = values[static_cast<std::size_t>((n * x.size(1) + channel) * plane + i)];
      sum += value;
      squares += value * value;
    }
  }
  const auto count = static_cast<double>(x.size(0) * plane);
  return {sum / count, squares / count - sum / count * sum / count};
}

TEST_P(BatchNormLayer, NormalisesByTheBatchInTrainingAndMovesItsStatistics) {
  BatchNorm2d norm(2);
  norm.materialize(1, GetParam());
  const Tensor x = random_tensor({4, 2, 3, 3}, "x", DType::float32, GetParam());
  const Tensor y = norm.forward(x);
  const auto mean = norm.named_buffers()[0].second.to_vector<float>();
  const auto variance = norm.named_buffers()[1].second.to_vector<float>();
  for (std::int64_t c = 0; c < 2; ++c) {
    EXPECT_NEAR(moments(y, c).first, 0, 1e-6);
    EXPECT_NEAR(moments(y, c).second, 1, 1e-3);
    const auto [batch_mean, batch_variance] = moments(x, c);
    const double unbiased = batch_variance * 36 / 35;
    EXPECT_NEAR(mean[static_cast<std::size_t>(c)], 0.1 * batch_mean, 1e-6);
    EXPECT_NEAR(variance[static_cast<std::size_t>(c)], 0.9 + 0.1 * unbiased, 1e-6);
  }
}

TEST_P(BatchNormLayer, NormalisesByItsStatisticsInEvaluationAndLeavesThem) {
  BatchNorm2d norm(1, 0.1, 0);
  norm.materialize(1, GetParam());
  norm.train(false);
  norm.named_buffers()[0].second.fill(3);
  norm.named_buffers()[1].second.fill(4);
  const Tensor y = norm.forward(Tensor::from<float>({3, 5, 7, 1}, {1, 1, 2, 2}, GetParam()));
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{0, 1, 2, -1}));
  EXPECT_EQ(norm.named_buffers()[0].second.item(), 3);
  EXPECT_EQ(norm.named_buffers()[1].second.item(), 4);
}

TEST_P(BatchNormLayer, UpdatesItsStatisticsWithoutGradientsToo) {
  BatchNorm2d norm(1);
  norm.materialize(1, GetParam());
  const NoGrad no_grad;
  EXPECT_FALSE(norm.forward(Tensor::full({2, 1, 2, 2}, 5, DType::float32, GetParam())).requires_grad());
  EXPECT_FLOAT_EQ(static_cast<float>(norm.named_buffers()[0].second.item()), 0.5F);
}

TEST_P(BatchNormLayer, SharesItsBatchInTrainingUntilToldOtherwise) {
  BatchNorm2d norm(2);
  norm.materialize(1, GetParam());
  const Tensor x = random_tensor({4, 2, 3, 3}, "x", DType::float32, GetParam());
  int sums = 0;
  norm.share_batch([&](Tensor&) { ++sums; });
  norm.forward(x);
  EXPECT_EQ(sums, 2);
  norm.train(false);
  norm.forward(x);
  EXPECT_EQ(sums, 2);
  norm.train();
  norm.share_batch({});
  norm.forward(x);
  EXPECT_EQ(sums, 2);
}

TEST(BatchNorm2d, RefusesWhatIsNoImage) {
  BatchNorm2d norm(3);
  norm.materialize(1);
  EXPECT_TRUE(fails_with<Error>({"[N, C, H, W]"}, [&] { norm.forward(Tensor::zeros({2, 3})); }));
}

}  // namespace
}  // namespace stagecoach
