// Batch norm over a batch that lies on several ranks, against one device that has all of it.

#include "parallel/data_parallel/sync_batch_norm.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <vector>

#include "core/autograd/backward.h"
#include "core/ops.h"
#include "nn/layers.h"
#include "nn/residual_blocks.h"
#include "nn/sequential.h"
#include "parallel/data_parallel/average_gradients.h"
#include "parallel/launch/launch.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::random_tensor;
using test::values_of;

/// How many samples of the batch each rank has.
using Shares = std::vector<std::int64_t>;
const Shares kShares[] = {{6}, {3, 3}, {5, 1}, {0, 6}, {2, 2, 2}, {4, 1, 1}, {3, 0, 3}, {2, 1, 2, 1}, {1, 0, 5, 0}};
constexpr int kFewClasses = 3;

/// [N, 2, 6, 5] to [N, kFewClasses], with two batch norms.
std::shared_ptr<Sequential> plain_model() {
  auto model = std::make_shared<Sequential>();
  model->add("conv1", std::make_shared<Conv2d>(2, 4, 3, Conv2dSettings{1, 1}, Bias::no));
  model->add("bn1", std::make_shared<BatchNorm2d>(4));
  model->add("relu", std::make_shared<ReLU>());
  model->add("pool", std::make_shared<MaxPool2d>(2));
  model->add("conv2", std::make_shared<Conv2d>(4, 5, 3, Conv2dSettings{1, 1}, Bias::no));
  model->add("bn2", std::make_shared<BatchNorm2d>(5));
  model->add("flatten", std::make_shared<Flatten>());
  model->add("linear", std::make_shared<Linear>(30, kFewClasses));
  return model;
}

/// The same with a residual block, whose shortcut has a batch norm too: three of them.
std::shared_ptr<Sequential> residual_model() {
  auto model = std::make_shared<Sequential>();
  model->add("block", std::make_shared<BasicBlock>(2, 4, 2));
  model->add("pool", std::make_shared<GlobalAveragePool>());
  model->add("linear", std::make_shared<Linear>(4, kFewClasses));
  return model;
}

/// What a step gives.
struct Result {
  Tensor logits;            // [N, kFewClasses]
  Tensor grad_x;            // [N, 2, 6, 5]
  NamedTensors gradients;   // of the parameters
  NamedTensors statistics;  // the running ones
};

/// Samples first … first+count-1 of the batch through the model, and back from their part of the mean loss.
Result step(Sequential& model, std::int64_t first, std::int64_t count, DType dtype, Device device) {
  const Tensor batch = random_tensor({6, 2, 6, 5}, "x", dtype, device);
  Tensor x = batch.narrow(first, count).clone().set_requires_grad(true);
  const Tensor labels = test::random_labels(6, kFewClasses, device).narrow(first, count);
  Result result;
  result.logits = model.forward(x);
  backward(scale(cross_entropy(result.logits, labels, Reduction::sum), 1.0 / 6));
  result.grad_x = x.grad();
  for (const auto& [name, parameter] : model.named_parameters()) {
    result.gradients.emplace_back(name, parameter.grad());
  }
  result.statistics = model.named_buffers();
  return result;
}

/// The largest difference, relative to the largest number of b.
double difference(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.shape(), b.shape());
  const auto x = values_of(a);
  const auto y = values_of(b);
  double apart = 0;
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_TRUE(std::isfinite(x[i])) << x[i];
    apart = std::max(apart, std::abs(x[i] - y[i]));
    largest = std::max(largest, std::abs(y[i]));
  }
  return apart == 0 ? 0 : apart / largest;
}

double difference(const NamedTensors& a, const NamedTensors& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].first, b[i].first);
    largest = std::max(largest, difference(a[i].second, b[i].second));
  }
  return largest;
}

class SyncBatchNorm : public ::testing::TestWithParam<std::tuple<Shares, DType>> {
 protected:
  static const Shares& shares() { return std::get<0>(GetParam()); }
  static DType dtype() { return std::get<1>(GetParam()); }
  static double bound() { return dtype() == DType::float32 ? 1e-5 : 1e-12; }
  static void check(const std::function<std::shared_ptr<Sequential>()>& make, int norms) {
    const auto one = make();
    one->materialize(1, {}, dtype());
    const Result wanted = step(*one, 0, 6, dtype(), {});
    launch({.ranks = static_cast<int>(shares().size())}, [&](Rank& rank) {
      const auto model = make();
      model->materialize(1, rank.device, dtype());
      EXPECT_EQ(batch_norm_layers(*model), norms);
      synchronise_batch_norm(*model, rank.comm);
      const std::int64_t count = shares()[static_cast<std::size_t>(rank.index)];
      const std::int64_t first = std::accumulate(shares().begin(), shares().begin() + rank.index, std::int64_t{0});
      Result got = step(*model, first, count, dtype(), rank.device);
      for (auto& [name, gradient] : got.gradients) {
        rank.comm.all_reduce(gradient);
      }
      EXPECT_LE(difference(got.logits, wanted.logits.narrow(first, count)), bound());
      EXPECT_LE(difference(got.grad_x, wanted.grad_x.narrow(first, count)), bound());
      EXPECT_LE(difference(got.gradients, wanted.gradients), bound());
      EXPECT_LE(difference(got.statistics, wanted.statistics), bound());
      require_equal_replicas(got.statistics, rank.comm);
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, SyncBatchNorm,
                         ::testing::Combine(::testing::ValuesIn(kShares),
                                            ::testing::Values(DType::float32, DType::float64)),
                         [](const auto& tested) {
                           return fmt::format("shares_{}_{}", fmt::join(std::get<0>(tested.param), "_"),
                                              name_of(std::get<1>(tested.param)));
                         });

TEST_P(SyncBatchNorm, IsThatOfOneDevice) { check(plain_model, 2); }

TEST_P(SyncBatchNorm, OfAResidualBlockIsThatOfOneDevice) { check(residual_model, 3); }

// The tests above can fail: each rank by itself gives something else.
TEST(BatchNormOnRanks, GivesSomethingElseUnlessSynchronised) {
  const auto one = plain_model();
  one->materialize(1);
  const Result wanted = step(*one, 0, 6, DType::float32, {});
  launch({.ranks = 2}, [&](Rank& rank) {
    const auto model = plain_model();
    model->materialize(1, rank.device);
    Result got = step(*model, 3 * rank.index, 3, DType::float32, rank.device);
    for (auto& [name, gradient] : got.gradients) {
      rank.comm.all_reduce(gradient);
    }
    EXPECT_GT(difference(got.logits, wanted.logits.narrow(3 * rank.index, 3)), 1e-3);
    EXPECT_GT(difference(got.grad_x, wanted.grad_x.narrow(3 * rank.index, 3)), 1e-3);
    EXPECT_GT(difference(got.gradients, wanted.gradients), 1e-3);
    EXPECT_GT(difference(got.statistics, wanted.statistics), 1e-3);
    EXPECT_TRUE(test::fails_with<Error>({"running_mean"}, [&] { require_equal_replicas(got.statistics, rank.comm); }));
  });
}

// Evaluation asks nobody: rank 0 alone goes through the model, and would wait for the other one.
TEST(SynchroniseBatchNorm, LeavesEvaluationAlone) {
  const auto one = plain_model();
  one->materialize(1);
  one->train(false);
  const Tensor x = random_tensor({3, 2, 6, 5}, "x", DType::float32);
  const Tensor wanted = one->forward(x);
  launch({.ranks = 2, .timeout = 5}, [&](Rank& rank) {
    const auto model = plain_model();
    model->materialize(1, rank.device);
    synchronise_batch_norm(*model, rank.comm);
    model->train(false);
    if (rank.index == 0) {
      EXPECT_TRUE(test::same_bytes(model->forward(x), wanted));
    }
  });
}

TEST(SynchroniseBatchNorm, OfOneRankChangesNoByte) {
  const auto by_itself = plain_model();
  by_itself->materialize(1);
  const Result wanted = step(*by_itself, 0, 6, DType::float32, {});
  const auto comm = self_communicator({});
  const auto model = plain_model();
  model->materialize(1);
  synchronise_batch_norm(*model, *comm);
  const Result got = step(*model, 0, 6, DType::float32, {});
  EXPECT_TRUE(test::same_bytes(got.logits, wanted.logits));
  EXPECT_TRUE(test::same_bytes(got.grad_x, wanted.grad_x));
}

}  // namespace
}  // namespace stagecoach
