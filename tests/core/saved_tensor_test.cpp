// What a graph keeps from its forward: versions, release, and the memory it holds.

#include <gtest/gtest.h>

#include "core/allocator.h"
#include "core/autograd/backward.h"
#include "core/ops.h"
#include "tests/support/devices.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::random_leaf;
using test::random_tensor;
using test::same_bytes;

/// y = linear(x, weight), both of which it saved.
struct Recorded {
  Tensor x = random_tensor({2, 3}, "x").set_requires_grad(true);
  Tensor weight = random_leaf({4, 3}, "weight");
  Tensor y = linear(x, weight);
  Tensor upstream = random_tensor({2, 4}, "upstream");
};

TEST(SavedTensor, AChangeInPlaceIsRefusedByName) {
  const auto changes = {
      +[](Tensor& weight) { weight.mutable_data<double>()[0] = 1; },
      +[](Tensor& weight) { weight.fill(1); },
      +[](Tensor& weight) {
        weight.copy_from(random_tensor({4, 3}, "other"));
      },
      +[](Tensor& weight) { weight.narrow(1, 1).fill(1); },
      +[](Tensor& weight) { weight.detach().raw_mutable_data(); },
  };
  for (const auto change : changes) {
    Recorded graph;
    {
      const NoGrad no_grad;
      change(graph.weight);
    }
    EXPECT_TRUE(fails_with({"backward of linear", "'weight'", "float64[4, 3]", "modified"},
                           [&] { backward(graph.y, graph.upstream); }));
    EXPECT_FALSE(graph.x.grad().defined());
  }
}

TEST(SavedTensor, EveryOperationNamesItselfAndWhatChanged) {
  const Tensor labels = test::random_labels(2, 3);
  Tensor x = random_leaf({2, 3}, "x");
  Tensor images = random_leaf({2, 3, 4, 4}, "images");
  Tensor kernel = random_leaf({1, 3, 3, 3}, "kernel");
  Tensor other = random_leaf({2, 3}, "other");
  Tensor ones = Tensor::full({3}, 1, DType::float64);
  const auto check = [](const char* operation, const char* saved, const Tensor& y, Tensor changed) {
    const std::string name = std::string("'") + saved + "'";
    changed.raw_mutable_data();
    EXPECT_TRUE(fails_with({operation, name.c_str()}, [&] { backward(y, Tensor::zeros(y.shape(), y.dtype())); }));
  };
  check("linear", "input", linear(x, other), x);
  check("conv2d", "input", conv2d(images, kernel), images);
  check("conv2d", "weight", conv2d(images, kernel), kernel);
  check("cross_entropy", "labels", cross_entropy(x, labels), labels);
  check("mean_squared_error", "a", mean_squared_error(x, other), x);
  check("mean_squared_error", "b", mean_squared_error(x, other), other);
  check("batch_norm", "input", batch_norm(x, ones, ones, ones.clone(), ones.clone()), x);
  Tensor scale_of_norm = ones.clone();
  check("batch_norm", "weight", batch_norm(x, scale_of_norm, ones, ones.clone(), ones.clone()), scale_of_norm);
  for (const auto& y : {relu(x), softmax(x), log_softmax(x)}) {
    check(y.grad_node()->name(), "output", y, y);
  }
}

// Weights that are not needed for these gradients may change: nothing reads them.
TEST(SavedTensor, WhatBackwardDoesNotReadMayChange) {
  const Tensor x = random_tensor({2, 3}, "x");
  Tensor weight = random_leaf({4, 3}, "weight");
  const Tensor y = linear(x, weight);
  const Tensor upstream = random_tensor({2, 4}, "upstream");
  backward(linear(x, weight), upstream);
  const Tensor expected = weight.grad().clone();
  weight.zero_grad();
  Tensor bystander = random_tensor({2, 4}, "bystander");
  const Tensor sum = add(y, bystander);
  bystander.fill(0);
  backward(sum, upstream);
  EXPECT_TRUE(same_bytes(weight.grad(), expected));
}

TEST(SavedTensor, UncheckedVersionsReadsTheNewValues) {
  Recorded graph;
  graph.weight.fill(2);
  {
    const UncheckedVersions unchecked;
    backward(graph.y, graph.upstream, RetainGraph::yes);
  }
  EXPECT_TRUE(same_bytes(graph.x.grad(), [&] {
    Tensor x = graph.x.detach().set_requires_grad(true);
    backward(linear(x, graph.weight), graph.upstream);
    return x.grad();
  }()));
  EXPECT_TRUE(fails_with({"linear"}, [&] { backward(graph.y, graph.upstream); })) << "the scope has ended";
}

// Weight stashing: the optimizer's new weights are in fresh storage, the graph keeps the old ones.
TEST(SavedTensor, RebindKeepsTheOldValuesForTheGraph) {
  Recorded graph;
  backward(graph.y, graph.upstream, RetainGraph::yes);
  const Tensor wanted_x = graph.x.grad().clone();
  const Tensor wanted_weight = graph.weight.grad().clone();
  graph.x.zero_grad();
  graph.weight.zero_grad();

  const Tensor old = graph.weight.clone();
  const Tensor fresh = random_tensor({4, 3}, "new weight");
  const auto old_storage = graph.weight.storage();
  const Tensor same = graph.weight;
  graph.weight.rebind(fresh);
  EXPECT_TRUE(same_bytes(same, fresh)) << "every handle names the new elements";
  EXPECT_TRUE(graph.weight.requires_grad());
  graph.weight.fill(9);
  backward(graph.y, graph.upstream);
  EXPECT_TRUE(same_bytes(graph.x.grad(), wanted_x));
  EXPECT_TRUE(same_bytes(graph.weight.grad(), wanted_weight));
  EXPECT_EQ(old_storage.use_count(), 1) << "once the graph has run nobody keeps the old weights";
  EXPECT_TRUE(fails_with({"rebind", "[4, 3]", "[3, 4]"}, [&] { graph.weight.rebind(random_tensor({3, 4}, "w")); }));
}

TEST(SavedTensor, ASecondBackwardIsRefused) {
  Recorded graph;
  backward(graph.y, graph.upstream);
  const Tensor once = graph.x.grad().clone();
  EXPECT_TRUE(fails_with({"backward of linear", "already"}, [&] { backward(graph.y, graph.upstream); }));
  EXPECT_TRUE(same_bytes(graph.x.grad(), once));
}

TEST(SavedTensor, AKeptGraphRunsAgain) {
  Recorded graph;
  backward(graph.y, graph.upstream, RetainGraph::yes);
  const Tensor once = graph.x.grad().clone();
  backward(graph.y, graph.upstream, RetainGraph::yes);
  EXPECT_TRUE(same_bytes(graph.x.grad(), add(once, once)));
  auto deferred = backward_inputs(graph.y, graph.upstream, std::vector{graph.x}, RetainGraph::yes);
  deferred.run();
  backward(graph.y, graph.upstream);
  EXPECT_TRUE(same_bytes(graph.weight.grad(), [&] {
    Tensor weight = graph.weight.detach().set_requires_grad(true);
    for (int i = 0; i < 4; ++i) {
      backward(linear(graph.x, weight), graph.upstream);
    }
    return weight.grad();
  }()));
}

std::size_t in_use(Device device) { return allocator(device).stats().current_bytes; }

/// What `tensor` takes in the allocator's count.
std::size_t taken_by(const Tensor& tensor) {
  return (tensor.bytes() + Allocator::kAlignment - 1) / Allocator::kAlignment * Allocator::kAlignment;
}

class SavedMemory : public ::testing::Test {
 protected:
  static constexpr int kLayers = 8;
  SavedMemory() {
    for (int i = 0; i < kLayers; ++i) {
      weights_.push_back(random_leaf({16, 16}, "weight " + std::to_string(i), DType::float32, device_));
    }
    baseline_ = in_use(device_);
  }
  Tensor forward() {
    Tensor h = x_;
    for (const Tensor& weight : weights_) {
      h = relu(linear(h, weight));
    }
    return h;
  }

  Device device_ = test::fresh_device();
  Tensor x_ = random_tensor({64, 16}, "x", DType::float32, device_);
  Tensor upstream_ = random_tensor({64, 16}, "upstream", DType::float32, device_);
  std::vector<Tensor> weights_;
  std::size_t baseline_ = 0;
};

TEST_F(SavedMemory, IsFreedByBackward) {
  {
    const Tensor y = forward();
    EXPECT_GE(in_use(device_), baseline_ + kLayers * taken_by(y)) << "the activations must be held until backward";
    backward(y, upstream_);
    EXPECT_EQ(in_use(device_), baseline_ + taken_by(y) + kLayers * taken_by(weights_[0].grad()))
        << "only the output and the gradients are left, although the output's graph still is";
  }
  for (Tensor& weight : weights_) {
    weight.zero_grad();
  }
  EXPECT_EQ(in_use(device_), baseline_);
}

TEST_F(SavedMemory, IsFreedNodeByNode) {
  const Tensor y = forward();
  const std::size_t before = in_use(device_);
  allocator(device_).reset_peak();
  backward(y, upstream_);
  // Gradients of two activations and one weight live at a time, with a kernel's scratch; not those of all layers.
  EXPECT_LE(allocator(device_).stats().peak_bytes, before + 6 * taken_by(y));
}

TEST_F(SavedMemory, IsFreedWithAnUnusedGraph) {
  forward();
  EXPECT_EQ(in_use(device_), baseline_);
}

TEST_F(SavedMemory, IsFreedByTheDeferredPart) {
  Tensor input = x_.detach().set_requires_grad(true);
  Tensor h = input;
  for (const Tensor& weight : weights_) {
    h = linear(h, weight);
  }
  auto deferred = backward_inputs(h, upstream_, std::vector{input});
  h = {};
  input.zero_grad();
  EXPECT_GE(in_use(device_), baseline_ + (kLayers - 1) * taken_by(x_)) << "owed: the inputs of all layers";
  deferred.run();
  for (Tensor& weight : weights_) {
    weight.zero_grad();
  }
  EXPECT_EQ(in_use(device_), baseline_);
}

TEST_F(SavedMemory, NothingIsSavedUnderNoGrad) {
  const NoGrad no_grad;
  const Tensor y = forward();
  EXPECT_EQ(in_use(device_), baseline_ + taken_by(y));
}

}  // namespace
}  // namespace stagecoach
