// The loss of logits that are cut by classes: the values of cross_entropy, and on ranks the bytes of the slices.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/autograd/backward.h"
#include "core/ops.h"
#include "parallel/launch/launch.h"
#include "parallel/tensor_parallel/class_parallel_loss.h"
#include "tests/parallel/worlds.h"
#include "tests/support/devices.h"
#include "tests/support/errors.h"
#include "tests/support/finite_differences.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::close;
using test::fails_with;
using test::labels_of;
using test::random_labels;
using test::random_tensor;
using test::same_bytes;

/// The loss, its gradient and the predictions.
struct Outcome {
  Tensor loss;
  Tensor gradient;
  Tensor predictions;
};

Outcome outcome_of(const LossFunction& loss_of, const Tensor& logits, const Tensor& labels) {
  const Tensor x = logits.clone().set_requires_grad(true);
  Tensor predictions;
  const Tensor loss = loss_of(x, labels, &predictions);
  backward(scale(loss, 0.25));
  return {loss.detach(), x.grad(), predictions};
}

std::int32_t correct_of(const Tensor& predictions, const Tensor& labels) {
  Tensor count = Tensor::zeros({}, DType::int32, labels.device());
  count_correct(predictions, labels, count);
  return static_cast<std::int32_t>(count.item());
}

class SlicedLoss : public ::testing::TestWithParam<Device> {
 protected:
  static Device device() { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Devices, SlicedLoss, ::testing::ValuesIn(test::devices()),
                         [](const auto& tested) { return test::name_of(tested.param); });

TEST_P(SlicedLoss, IsTheCrossEntropy) {
  for (const DType dtype : {DType::float32, DType::float64}) {
    const double bound = dtype == DType::float32 ? 1e-6 : 1e-14;
    for (const int slices : {1, 2, 3, 12}) {
      for (const Shape& shape : {Shape{5, 12}, {1, 12}, {64, 12}, {3, 1200}}) {
        const Tensor logits = scale(random_tensor(shape, "logits", dtype, device()), 5);
        const Tensor labels = random_labels(shape[0], shape[1], device());
        const Outcome whole = outcome_of(loss_of_whole_logits, logits, labels);
        const Outcome sliced = outcome_of(sliced_class_loss(slices), logits, labels);
        EXPECT_TRUE(close(sliced.loss, whole.loss, 0, bound)) << slices << " slices, " << to_string(shape);
        EXPECT_TRUE(close(sliced.gradient, whole.gradient, bound, bound)) << slices << " slices, " << to_string(shape);
        EXPECT_EQ(correct_of(sliced.predictions, labels), correct_of(whole.predictions, labels));
      }
    }
  }
}

TEST_P(SlicedLoss, OfOneSliceHasTheBytesOfTheCrossEntropy) {
  const Tensor logits = random_tensor({7, 10}, "logits", DType::float32, device());
  const Tensor labels = random_labels(7, 10, device());
  const Outcome whole = outcome_of(loss_of_whole_logits, logits, labels);
  const Outcome sliced = outcome_of(sliced_class_loss(1), logits, labels);
  EXPECT_TRUE(same_bytes(sliced.loss, whole.loss));
  EXPECT_TRUE(same_bytes(sliced.gradient, whole.gradient));
}

TEST_P(SlicedLoss, OfSeveralLabelsPerSampleIsTheCrossEntropy) {
  const Tensor logits = random_tensor({3, 5, 12}, "logits", DType::float32, device());
  const Tensor labels = random_labels(15, 12, device()).reshape({3, 5});
  const Outcome whole = outcome_of(loss_of_whole_logits, logits, labels);
  const Outcome sliced = outcome_of(sliced_class_loss(3), logits, labels);
  EXPECT_TRUE(close(sliced.loss, whole.loss, 0, 1e-6));
  EXPECT_TRUE(close(sliced.gradient, whole.gradient, 1e-6, 1e-6));
  EXPECT_EQ(sliced.predictions.shape(), labels.shape());
  EXPECT_EQ(correct_of(sliced.predictions, labels), correct_of(whole.predictions, labels));
}

TEST_P(SlicedLoss, HasTheGradientOfFiniteDifferences) {
  const Tensor labels = random_labels(4, 6, device());
  for (const int slices : {1, 2, 3}) {
    test::check_gradients(
        device(), [&](const std::vector<Tensor>& in) { return sliced_class_loss(slices)(in[0], labels, nullptr); },
        {random_tensor({4, 6}, "logits")});
  }
}

// exp of these logits would overflow; one slice is far below the other.
TEST_P(SlicedLoss, OfLargeLogitsIsFinite) {
  const std::vector<double> logits{5000, -5000, -5000, 5000, 1, 2, 3, 4};
  const Tensor x = test::typed(logits, {2, 4}, DType::float64, device());
  const double wanted = 10000 + std::log(2) + std::log(std::exp(-3) + std::exp(-2) + std::exp(-1) + 1);
  EXPECT_NEAR(sliced_class_loss(2)(x, labels_of({1, 3}, device()), nullptr).item(), wanted, 1e-9);
}

TEST_P(SlicedLoss, OfNaNIsNaN) {
  for (const std::size_t at : {0, 1, 2, 3}) {
    std::vector<double> logits{1, 2, 3, 4};
    logits[at] = std::nan("");
    const Tensor row = test::typed(logits, {1, 4}, DType::float32, device());
    EXPECT_TRUE(std::isnan(sliced_class_loss(2)(row, labels_of({0}, device()), nullptr).item())) << at;
  }
}

// As for whole logits: the first class of equal ones, whether they are in one slice or in several.
TEST_P(SlicedLoss, PredictsTheFirstOfEqualClasses) {
  const Tensor logits = test::typed(std::vector<double>{1, 7, 7, 7,  //
                                                        7, 7, 1, 1,  //
                                                        1, 2, 7, 7,  //
                                                        0, 0, 0, 0},
                                    {4, 4}, DType::float32, device());
  Tensor predictions;
  sliced_class_loss(2)(logits, labels_of({0, 0, 0, 0}, device()), &predictions);
  EXPECT_TRUE(same_bytes(predictions.to(Device{}), labels_of({1, 0, 2, 0})));
  EXPECT_EQ(correct_of(predictions, labels_of({1, 1, 2, 3}, device())), 2);
  EXPECT_EQ(correct_of(logits, labels_of({1, 1, 2, 3}, device())), 2);
}

TEST(ClassParallelLoss, HasTheBytesOfTheSlices) {
  for (const int ranks : {2, 3, 4}) {
    if (!test::has_ranks(ranks)) {
      continue;
    }
    launch(test::world_of(ranks), [&](Rank& rank) {
      for (const DType dtype : {DType::float32, DType::float64}) {
        for (const std::int64_t samples : {1, 6, 0}) {
          const Tensor logits = random_tensor({samples, 12}, "logits", dtype, rank.device);
          const Tensor labels = random_labels(samples, 12, rank.device);
          const std::int64_t width = 12 / ranks;
          const auto mine = [&](const Tensor& whole) { return narrow_columns(whole, rank.index * width, width); };
          const Outcome wanted = outcome_of(sliced_class_loss(ranks), logits, labels);
          const auto loss = class_parallel_loss({ranks, rank.index, &rank.comm});
          const Outcome got = outcome_of(loss, mine(logits), labels);
          EXPECT_TRUE(same_bytes(got.loss, wanted.loss));
          EXPECT_TRUE(same_bytes(got.gradient, mine(wanted.gradient)));
          EXPECT_TRUE(same_bytes(got.predictions, wanted.predictions));
        }
      }
    });
  }
}

// Four numbers per sample, in one ring forward; nothing backward, whatever the number of classes.
TEST(ClassParallelLoss, SendsTheBytesOfTheFormula) {
  for (const int ranks : {2, 4}) {
    if (!test::has_ranks(ranks)) {
      continue;
    }
    launch(test::world_of(ranks), [&](Rank& rank) {
      const auto sent = [&] {
        double bytes = 0;
        for (const auto& [to, link_bytes] : rank.comm.bytes_sent()) {
          bytes += link_bytes;
        }
        return bytes;
      };
      for (const std::int64_t classes : {4, 400}) {
        const double before = sent();
        outcome_of(class_parallel_loss({ranks, rank.index, &rank.comm}),
                   random_tensor({6, classes}, "logits", DType::float32, rank.device),
                   random_labels(6, classes, rank.device));
        EXPECT_DOUBLE_EQ(sent() - before, (ranks - 1) * 6 * 4 * 4.0) << "of rank " << rank.index;
      }
    });
  }
}

TEST(ClassParallelErrors, NameTheLabelsAndShapes) {
  const LossFunction loss = sliced_class_loss(2);
  const Tensor logits = Tensor::zeros({3, 4});
  EXPECT_TRUE(fails_with({"from 0 to 3", "got 4 for sample 1"}, [&] { loss(logits, labels_of({0, 4, 0}), nullptr); }));
  EXPECT_TRUE(fails_with({"got -1 for sample 2"}, [&] { loss(logits, labels_of({0, 3, -1}), nullptr); }));
  EXPECT_TRUE(fails_with({"class-parallel loss", "[3, 4]", "[2]"}, [&] { loss(logits, labels_of({0, 1}), nullptr); }));
  EXPECT_TRUE(fails_with({"class-parallel loss", "2 equal slices", "[1, 5]"}, [&] {
    loss(Tensor::zeros({1, 5}), labels_of({0}), nullptr);
  }));
  EXPECT_TRUE(fails_with({"class-parallel loss", "int32"}, [&] { loss(logits, Tensor::zeros({3}), nullptr); }));
}

}  // namespace
}  // namespace stagecoach
