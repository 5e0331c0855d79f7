// Models of float64, trained through each wrapper, end with the bytes of one device.
#include <gtest/gtest.h>

#include <memory>

#include "core/autograd/backward.h"
#include "core/ops.h"
#include "datasets/shares.h"
#include "nn/layers.h"
#include "parallel/parallel.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::random_tensor;
using test::same_bytes;

constexpr int kWideParts = 4;
constexpr int kWideSteps = 3;
const LossFunction kWideLoss([](const Tensor& y, const Tensor& t) { return mean_squared_error(y, t, Reduction::sum); },
                             Reduction::sum);

Tensor wide_inputs() { return random_tensor({11, 4}, "x", DType::float64); }
Tensor wide_targets() { return random_tensor({11, 3}, "target", DType::float64); }

std::shared_ptr<Sequential> wide_model() {
  auto model = std::make_shared<Sequential>();
  model->add("fc1", std::make_shared<Linear>(4, 8)).add("norm", std::make_shared<LayerNorm>(8));
  model->add("gelu", std::make_shared<GELU>()).add("fc2", std::make_shared<Linear>(8, 3));
  return model;
}

NamedTensors wide_trained_alone() {
  const auto model = wide_model();
  model->materialize(1, {}, DType::float64);
  Adam optimizer(model->named_parameters());
  for (int step = 0; step < kWideSteps; ++step) {
    const std::vector<Tensor> parts = micro_batches(wide_targets(), kWideParts);
    for (std::size_t i = 0; const Tensor& x : micro_batches(wide_inputs(), kWideParts)) {
      backward(kWideLoss(model->forward(x), parts[i++]), Tensor::full({}, 1.0 / 11, DType::float64));
    }
    optimizer.step();
    optimizer.zero_grad();
  }
  return model->named_parameters();
}

/// These are all parameters, or those of a rank.
void expect_wide_trained(const NamedTensors& parameters) {
  const NamedTensors expected = wide_trained_alone();
  ASSERT_FALSE(parameters.empty());
  for (const auto& [name, parameter] : parameters) {
    EXPECT_EQ(parameter.dtype(), DType::float64);
    EXPECT_TRUE(same_bytes(parameter.to(Device{}), find_tensor(expected, name))) << name;
  }
}

TEST(Float64, PipeTrainsAsOneDevice) {
  for (const char* schedule : {"1f1b", "gpipe", "zbv"}) {
    Pipe pipe(
        wide_model(),
        {.chunks = kWideParts, .schedule = schedule, .loss = kWideLoss, .optimizer = adam(), .type = DType::float64});
    for (int step = 0; step < kWideSteps; ++step) {
      pipe.train_step(wide_inputs(), wide_targets());
    }
    expect_wide_trained(pipe.model().named_parameters());
    EXPECT_EQ(pipe.forward(wide_inputs()).dtype(), DType::float64);
  }
}

TEST(Float64, MeshPipeTrainsAsOneDevice) {
  launch({.ranks = 2}, [](Rank& rank) {
    const auto make = [](const LayerFactory&) { return wide_model(); };
    MeshPipe pipe(rank.comm, {.pipeline = 2}, make,
                  {.chunks = kWideParts, .loss = kWideLoss, .optimizer = adam(), .type = DType::float64});
    pipe.place({11, 4});
    for (int step = 0; step < kWideSteps; ++step) {
      pipe.train_step(wide_inputs(), wide_targets());
    }
    expect_wide_trained(pipe.layers().named_parameters());
  });
}

TEST(Float64, DataParallelTrainsAsOneDevice) {
  DataParallel parallel(wide_model,
                        {.ranks = kWideParts, .loss = kWideLoss, .optimizer = adam(), .type = DType::float64});
  for (int step = 0; step < kWideSteps; ++step) {
    parallel.train_step(wide_inputs(), wide_targets());
  }
  expect_wide_trained(parallel.model().named_parameters());
}

TEST(Float64, DistributedDataParallelTrainsAsOneDevice) {
  launch({.ranks = kWideParts}, [](Rank& rank) {
    const auto model = wide_model();
    model->materialize(1, rank.device, DType::float64);
    DistributedDataParallel parallel(*model, rank.comm);
    Adam optimizer(model->named_parameters());
    const Share share = share_of(11, rank.index, rank.world);
    const auto mine = [&](const Tensor& all) { return all.narrow(share.first, share.count).to(rank.device); };
    for (int step = 0; step < kWideSteps; ++step) {
      parallel.backward(kWideLoss(parallel.forward(mine(wide_inputs())), mine(wide_targets())), 11);
      optimizer.step();
      optimizer.zero_grad();
    }
    expect_wide_trained(model->named_parameters());
  });
}

TEST(Float64, MustBeChosen) {
  Pipe pipe(wide_model());
  EXPECT_TRUE(fails_with<UsageError>({"expected inputs float32", "got float64[11, 4]", "set `.type`"},
                                     [&] { pipe.forward(wide_inputs()); }));
  EXPECT_TRUE(fails_with<UsageError>({"weights of type float32 or float64, got int32"},
                                     [] { Pipe(wide_model(), {.type = DType::int32}); }));
}

}  // namespace
}  // namespace stagecoach
