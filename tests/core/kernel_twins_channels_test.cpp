// Sums over channels, and batch norm.

#include <algorithm>
#include <cmath>

#include "tests/core/kernel_twins.h"

namespace stagecoach {
namespace {

using test::Tensors;

class ChannelTwins : public test::KernelTwins {};
STAGECOACH_KERNEL_TWINS(ChannelTwins);

const Shape kShapes[] = {{7, 3},        {2, 37},       {300, 5},       {1009, 1},     {2, 3, 5, 7},
                         {5, 17, 1, 1}, {3, 37, 4, 4}, {1, 1, 17, 19}, {1, 300, 2, 1}};

/// How many numbers a channel has.
std::int64_t count_of(const Shape& shape) { return shape.numel() / std::max<std::int64_t>(shape[1], 1); }

/// Calls body(shape, [C]) for all of kShapes and, if asked for, for shapes without samples.
template <class Body>
void for_each_shape(bool empty_too, const Body& body) {
  std::vector<Shape> shapes(std::begin(kShapes), std::end(kShapes));
  if (empty_too) {
    shapes.insert(shapes.end(), {Shape{0, 3}, Shape{0, 37, 4, 4}});
  }
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(to_string(shape));
    body(shape, Shape{shape[1]});
  }
}

TEST_P(ChannelTwins, ChannelSums) {
  for_each_shape(true, [](const Shape& shape, const Shape& channels) {
    expect_twins(
        {random(shape, "x"), unset(channels)}, [](const Kernels& k, Tensors& t) { k.channel_sums(t[0], t[1]); },
        count_of(shape));
  });
}

TEST_P(ChannelTwins, BatchStatistics) {
  for_each_shape(false, [](const Shape& shape, const Shape& channels) {
    expect_twins({random(shape, "x"), unset(channels), unset(channels)},
                 [](const Kernels& k, Tensors& t) { k.batch_statistics(t[0], t[1], t[2]); });
  });
}

TEST_P(ChannelTwins, SquaredDeviations) {
  for_each_shape(true, [](const Shape& shape, const Shape& channels) {
    expect_twins(
        {random(shape, "x"), random(channels, "mean"), unset(channels)},
        [](const Kernels& k, Tensors& t) { k.squared_deviations(t[0], t[1], t[2]); }, count_of(shape));
  });
}

// Channels whose values are divided among blocks: rows of whole vectors and others, and threads with several vectors.
const Shape kManyValues[] = {{75, 2, 8, 8}, {99, 2, 7, 7}, {41, 1, 20, 20}};

TEST_P(ChannelTwins, BatchStatisticsOfManyValues) {
  for (const Shape& shape : kManyValues) {
    SCOPED_TRACE(to_string(shape));
    expect_twins({random(shape, "x"), unset({shape[1]}), unset({shape[1]})},
                 [](const Kernels& k, Tensors& t) { k.batch_statistics(t[0], t[1], t[2]); });
  }
}

// A large mean beside a small spread: the mean of squares minus the square of the mean would keep no digit.
TEST_P(ChannelTwins, BatchStatisticsBesideALargeMean) {
  for (const Shape& shape : {Shape{33, 3, 5, 4}, kManyValues[0], kManyValues[1], kManyValues[2]}) {
    SCOPED_TRACE(to_string(shape));
    std::vector<double> values = test::values_of(random(shape, "x"));
    for (double& value : values) {
      value = 4096 + std::round(value * 8) / 8;  // exact in both types
    }
    expect_twins(
        {test::typed(values, shape, type()), unset({shape[1]}), unset({shape[1]})},
        [](const Kernels& k, Tensors& t) { k.batch_statistics(t[0], t[1], t[2]); }, 100);
  }
}

TEST_P(ChannelTwins, UpdateRunningStatistics) {
  for (const std::int64_t channels : {1, 37, 300}) {
    for (const std::int64_t count : {2, 17, 10000}) {
      expect_twins(
          {random({channels}, "mean"), positive({channels}, "variance"), random({channels}, "running mean"),
           positive({channels}, "running variance")},
          [&](const Kernels& k, Tensors& t) { k.update_running_statistics(t[0], t[1], 0.3, count, t[2], t[3]); });
    }
  }
}

TEST_P(ChannelTwins, InverseDeviation) {
  for (const std::int64_t channels : {1, 37, 300}) {
    expect_twins({positive({channels}, "variance"), unset({channels})},
                 [](const Kernels& k, Tensors& t) { k.rstd(t[0], 1e-5, t[1]); });
  }
  expect_twins({Tensor::zeros({3}, type()), unset({3})},
               [](const Kernels& k, Tensors& t) { k.rstd(t[0], 1e-5, t[1]); });
}

TEST_P(ChannelTwins, BatchNorm) {
  for_each_shape(true, [](const Shape& shape, const Shape& channels) {
    for (const Activation activation : {Activation::none, Activation::relu}) {
      for (const Tensor& addend : {Tensor(), random(shape, "addend")}) {
        expect_twins(
            {random(shape, "x"), random(channels, "mean"), positive(channels, "inverse"), random(channels, "weight"),
             random(channels, "bias"), addend, unset(shape)},
            [&](const Kernels& k, Tensors& t) { k.batch_norm(t[0], t[1], t[2], t[3], t[4], t[5], activation, t[6]); });
      }
    }
  });
}

TEST_P(ChannelTwins, BatchNormGradWeight) {
  for_each_shape(true, [](const Shape& shape, const Shape& channels) {
    for (const Activation activation : {Activation::none, Activation::relu}) {
      expect_twins(
          {random(shape, "grad"), random(shape, "x"), random(channels, "mean"), positive(channels, "inverse"),
           random(channels, "weight"), random(channels, "bias"), unset(channels), unset(channels)},
          [&](const Kernels& k, Tensors& t) {
            k.batch_norm_grad_weight(t[0], t[1], t[2], t[3], t[4], t[5], activation, t[6], t[7]);
          },
          count_of(shape));
    }
  });
}

TEST_P(ChannelTwins, BatchNormGradInput) {
  for_each_shape(true, [](const Shape& shape, const Shape& channels) {
    expect_twins({random(shape, "grad"), positive(channels, "inverse"), random(channels, "weight"), unset(shape)},
                 [](const Kernels& k, Tensors& t) { k.batch_norm_grad_input(t[0], t[1], t[2], t[3]); });
  });
}

TEST_P(ChannelTwins, BatchNormGradInputOfBatch) {
  for_each_shape(true, [](const Shape& shape, const Shape& channels) {
    const std::int64_t count = count_of(shape) + 5;  // x is a part of the batch
    for (const Activation activation : {Activation::none, Activation::relu}) {
      expect_twins({random(shape, "grad"), random(shape, "x"), random(channels, "mean"), positive(channels, "inverse"),
                    random(channels, "weight"), random(channels, "bias"), random(channels, "grad of weight"),
                    random(channels, "grad of bias"), unset(shape)},
                   [&](const Kernels& k, Tensors& t) {
                     k.batch_norm_grad_input_of_batch(t[0], t[1], t[2], t[3], t[4], t[5], activation, t[6], t[7], count,
                                                      t[8]);
                   });
    }
  });
}

}  // namespace
}  // namespace stagecoach
