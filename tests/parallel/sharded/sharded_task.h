#pragma once
/// @file
/// Trainings with sharded data parallelism, and what one device makes of the same micro-batches.

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/autograd/backward.h"
#include "core/kernels/kernels.h"
#include "core/ops.h"
#include "datasets/shares.h"
#include "nn/make_optimizer.h"
#include "nn/models.h"
#include "parallel/launch/launch.h"
#include "parallel/wrappers/sharded_data_parallel.h"
#include "tests/support/tensors.h"

namespace stagecoach::test {

/// A model, an optimizer, and how many batches of random images to train on.
struct ShardedTask {
  static constexpr std::int64_t kImages = 13;  ///< per batch: ranks have different numbers of them
  static constexpr std::uint64_t kSeed = 5;
  static constexpr int kSteps = 3;
  const char* name;
  std::shared_ptr<Sequential> (*make)();
  std::int64_t image_size;
  MakeOptimizer optimizer;

  /// Part `index` of `parts` of the images, and of the labels, of a step.
  Tensor images(int step, int parts, int index) const {
    return part(random_tensor({kImages, 3, image_size, image_size}, fmt::format("images {}", step), DType::float32),
                parts, index);
  }
  static Tensor labels(int parts, int index) { return part(random_labels(kImages, 10), parts, index); }

 private:
  static Tensor part(const Tensor& batch, int parts, int index) {
    return micro_batches(batch, parts)[static_cast<std::size_t>(index)];
  }
};
inline void PrintTo(const ShardedTask& task, std::ostream* out) { *out << task.name; }

inline std::shared_ptr<Sequential> convnet() { return make_model("convnet"); }
inline std::shared_ptr<Sequential> small_vit() {
  return make_model("vit", {.image_size = 16, .sizes = {.depth = 2, .width = 24, .heads = 2}});
}

/// Micro-batches whose gradients are summed, group by group.
using Groups = std::vector<std::vector<int>>;

/// Returns the parameters after training on one device: the gradients of the micro-batches of a group are added in
/// order, and then those of the groups.
inline NamedTensors trained_on_one_device(const ShardedTask& task, int parts, const Groups& groups) {
  const auto model = task.make();
  model->materialize(ShardedTask::kSeed);
  const NamedTensors parameters = model->named_parameters();
  const auto optimizer = task.optimizer(parameters);
  for (int step = 0; step < ShardedTask::kSteps; ++step) {
    std::vector<Tensor> sums(parameters.size());
    for (const std::vector<int>& group : groups) {
      for (const int index : group) {
        const Tensor loss = cross_entropy(model->forward(task.images(step, parts, index)),
                                          ShardedTask::labels(parts, index), Reduction::sum);
        backward(loss, Tensor::full({}, 1.0 / ShardedTask::kImages));
      }
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        const Tensor gradient = take_gradient(parameters[i].second);
        if (sums[i].defined()) {
          kernels(Device{}).add_scaled(gradient, 1, sums[i]);
        } else {
          sums[i] = gradient;
        }
      }
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      Tensor parameter = parameters[i].second;
      parameter.set_grad(sums[i]);
    }
    optimizer->step();
    optimizer->zero_grad();
  }
  return parameters;
}

/// One group of the ranks' parts, in rank order.
inline Groups one_group(int parts) {
  Groups groups(1);
  for (int i = 0; i < parts; ++i) {
    groups[0].push_back(i);
  }
  return groups;
}

/// Trains as `rank`, with `microbatches` per step.
inline void train_sharded(const ShardedTask& task, ShardedDataParallel& sharded, Optimizer& optimizer, Rank& rank,
                          int microbatches = 1) {
  const int parts = rank.world * microbatches;
  for (int step = 0; step < ShardedTask::kSteps; ++step) {
    for (int i = 0; i < microbatches; ++i) {
      const int index = rank.index * microbatches + i;
      const Tensor loss = cross_entropy(sharded.forward(task.images(step, parts, index).to(rank.device)),
                                        ShardedTask::labels(parts, index).to(rank.device), Reduction::sum);
      if (i + 1 < microbatches) {
        sharded.accumulate(loss, ShardedTask::kImages);
      } else {
        sharded.backward(loss, ShardedTask::kImages);
      }
    }
    optimizer.step();
    optimizer.zero_grad();
  }
}

/// Checks the parameters of all units.
inline void expect_parameters(const NamedTensors& wanted, ShardedDataParallel& sharded) {
  std::size_t i = 0;
  sharded.for_each_unit([&](const NamedTensors& parameters) {
    for (const auto& [name, parameter] : parameters) {
      ASSERT_LT(i, wanted.size());
      EXPECT_EQ(wanted[i].first, name);
      EXPECT_TRUE(same_bytes(wanted[i].second, parameter)) << name;
      ++i;
    }
  });
  EXPECT_EQ(i, wanted.size());
}

/// Trains in `world`, and checks the parameters.
inline void expect_trained(const ShardedTask& task, const World& world, ShardedSettings settings,
                           const NamedTensors& wanted, int microbatches = 1) {
  settings.seed = ShardedTask::kSeed;
  launch(world, [&](Rank& rank) {
    ShardedDataParallel sharded(*task.make(), rank.comm, settings);
    const auto optimizer = task.optimizer(sharded.shards());
    train_sharded(task, sharded, *optimizer, rank, microbatches);
    expect_parameters(wanted, sharded);
  });
}

inline const char* text_of(Sharded sharded) {
  return sharded == Sharded::optimizer ? "optimizer" : sharded == Sharded::gradients ? "gradients" : "parameters";
}

}  // namespace stagecoach::test
