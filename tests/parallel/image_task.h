#pragma once
/// @file
/// Tasks with random images to train on, and what one device makes of them.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/autograd/backward.h"
#include "core/ops.h"
#include "datasets/shares.h"
#include "nn/make_optimizer.h"
#include "nn/models.h"
#include "nn/optimizer.h"
#include "tests/support/sanitized.h"
#include "tests/support/tensors.h"

namespace stagecoach::test {

/// A model, an optimizer, and how many batches of random images to train on.
struct ImageTask {
  static constexpr std::int64_t kImages = 10;  ///< per batch
  static constexpr std::uint64_t kSeed = 5;    ///< of the weights
  const char* name;
  const char* model;
  std::int64_t image_size;
  int steps;
  MakeOptimizer optimizer;
  std::shared_ptr<Sequential> make() const { return make_model(model); }
  Tensor images(int step) const {
    return random_tensor({kImages, 3, image_size, image_size}, fmt::format("images {}", step), DType::float32);
  }
  static Tensor labels() { return random_labels(kImages, 10); }
};
inline void PrintTo(const ImageTask& task, std::ostream* out) { *out << task.name; }

/// For INSTANTIATE_TEST_SUITE_P.
inline auto image_tasks() {
  const ImageTask convnet{"ConvnetSgd", "convnet", 32, 3, sgd({.momentum = 0.9})};
  const ImageTask resnet{"Resnet18Adam", "resnet18", 16, 2, adam()};
  return ::testing::ValuesIn(
      unless_sanitized<std::vector<ImageTask>>({convnet,
                                                {"ConvnetAdam", "convnet", 32, 3, adam()},
                                                {"Resnet18Sgd", "resnet18", 16, 2, sgd({.momentum = 0.9})},
                                                resnet},
                                               {convnet, resnet}));
}
inline std::string name_of_task(const ::testing::TestParamInfo<ImageTask>& test) { return test.param.name; }

/// One device that accumulates the gradients of `microbatches` micro-batches.
struct OneDevice {
  OneDevice(const ImageTask& task, int microbatches) : model(task.make()) {
    model->materialize(ImageTask::kSeed);
    const auto optimizer = task.optimizer(model->named_parameters());
    constexpr auto kImages = static_cast<double>(ImageTask::kImages);
    for (int step = 0; step < task.steps; ++step) {
      const std::vector<Tensor> images = micro_batches(task.images(step), microbatches);
      const std::vector<Tensor> targets = micro_batches(ImageTask::labels(), microbatches);
      double loss_sum = 0;
      for (std::size_t i = 0; i < images.size(); ++i) {
        const Tensor loss = cross_entropy(model->forward(images[i]), targets[i], Reduction::sum);
        backward(loss, Tensor::full({}, 1 / kImages));
        loss_sum += loss.item();
      }
      losses.push_back(loss_sum / kImages);
      optimizer->step();
      optimizer->zero_grad();
    }
  }
  std::shared_ptr<Sequential> model;
  std::vector<double> losses;
};

/// The same names and bytes.
inline void expect_equal(const NamedTensors& wanted, const NamedTensors& got) {
  ASSERT_EQ(wanted.size(), got.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(wanted[i].first, got[i].first);
    EXPECT_TRUE(same_bytes(wanted[i].second, got[i].second)) << got[i].first;
  }
}

}  // namespace stagecoach::test
