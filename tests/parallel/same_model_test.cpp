// How ranks that train one model begin.

#include "parallel/data_parallel/same_model.h"

#include <gtest/gtest.h>

#include <memory>

#include "nn/layers.h"
#include "nn/sequential.h"
#include "parallel/launch/launch.h"
#include "tests/parallel/training_record.h"

namespace stagecoach {
namespace {

using test::copies;
using test::equal;

TEST(StartAlike, GivesAllRanksTheValuesOfTheFirst) {
  launch({.ranks = 3}, [](Rank& rank) {
    auto model = std::make_shared<Sequential>();
    model->add("conv", std::make_shared<Conv2d>(3, 2, 3)).add("bn", std::make_shared<BatchNorm2d>(2));
    model->materialize(static_cast<std::uint64_t>(rank.index), rank.device);
    model->named_buffers()[0].second.fill(rank.index);
    broadcast_module(*model, rank.comm);
    auto first = std::make_shared<Sequential>();
    first->add("conv", std::make_shared<Conv2d>(3, 2, 3)).add("bn", std::make_shared<BatchNorm2d>(2));
    first->materialize(0);
    EXPECT_TRUE(equal(copies(model->named_parameters(), [](const Tensor& p) { return p; }), first->named_parameters()));
    EXPECT_TRUE(equal(copies(model->named_buffers(), [](const Tensor& p) { return p; }), first->named_buffers()));
  });
}

}  // namespace
}  // namespace stagecoach
