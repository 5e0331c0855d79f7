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

/// A model, an optimizer, and batches of random images, or of random tokens.
struct ShardedTask {
  static constexpr std::int64_t kImages = 13;  ///< per batch: ranks have different numbers of them
  static constexpr std::uint64_t kSeed = 5;
  static constexpr int kSteps = 3;
  const char* name;
  std::shared_ptr<Sequential> (*make)();
  std::int64_t image_size;  ///< 0: kTokens tokens in place of an image
  MakeOptimizer optimizer;
  TiedWeights::Names tied = {};
  bool (*trains)(const std::string& name) = [](const std::string&) { return true; };
  static constexpr std::int64_t kTokens = 6;
  static constexpr std::int64_t kClasses = 10;

  bool reads_text() const { return image_size == 0; }
  /// Part `index` of `parts` of the images, and of the labels, of a step.
  Tensor images(int step, int parts, int index) const {
    return part(reads_text() ? random_labels(kImages * kTokens, 8 + step).reshape({kImages, kTokens})
                             : random_tensor({kImages, 3, image_size, image_size}, fmt::format("images {}", step),
                                             DType::float32),
                parts, index);
  }
  /// The loss of this part: the sum over its images, or over its tokens.
  Tensor loss(const Tensor& logits, int parts, int index) const {
    const std::int64_t rows = reads_text() ? kTokens : 1;
    const Tensor labels = part(random_labels(kImages * rows, kClasses).reshape({kImages, rows}), parts, index);
    return cross_entropy(logits.reshape({labels.numel(), kClasses}),
                         labels.reshape({labels.numel()}).to(logits.device()), Reduction::sum);
  }
  /// These settings, with what the task needs.
  ShardedSettings with(ShardedSettings settings = {}) const {
    settings.seed = kSeed;
    settings.tied = tied;
    settings.trains = trains;
    return settings;
  }

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

/// Two blocks, whose head is the embedding.
inline std::shared_ptr<Sequential> tied_gpt() {
  return make_model("gpt", {.classes = ShardedTask::kClasses,
                            .sizes = {.depth = 2, .width = 16, .heads = 2, .context = ShardedTask::kTokens},
                            .tie_head = true});
}

/// Micro-batches whose gradients are summed, group by group.
using Groups = std::vector<std::vector<int>>;

/// Returns the parameters after training on one device: the gradients of the micro-batches of a group are added in
/// order, and then those of the groups.
inline NamedTensors trained_on_one_device(const ShardedTask& task, int parts, const Groups& groups) {
  const auto model = task.make();
  model->materialize(ShardedTask::kSeed);
  const NamedTensors all = model->named_parameters();
  NamedTensors parameters;  // that are trained
  for (auto [name, parameter] : all) {
    if (parameter.set_requires_grad(task.trains(name)).requires_grad()) {
      parameters.emplace_back(name, parameter);
    }
  }
  TiedWeights tied(all, task.tied);
  const auto optimizer = task.optimizer(tied.without_copies(parameters));
  tie(*optimizer, tied);
  for (int step = 0; step < ShardedTask::kSteps; ++step) {
    std::vector<Tensor> sums(parameters.size());
    for (const std::vector<int>& group : groups) {
      for (const int index : group) {
        const Tensor loss = task.loss(model->forward(task.images(step, parts, index)), parts, index);
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
  return all;
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
      const Tensor loss = task.loss(sharded.forward(task.images(step, parts, index).to(rank.device)), parts, index);
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

/// Checks the parameters of all units; copies of tied ones are in none.
inline void expect_parameters(const NamedTensors& wanted, ShardedDataParallel& sharded, std::size_t copies = 0) {
  std::size_t count = 0;
  sharded.for_each_unit([&](const NamedTensors& parameters) {
    for (const auto& [name, parameter] : parameters) {
      const Tensor same = find_tensor(wanted, name);
      ASSERT_TRUE(same.defined()) << name;
      EXPECT_TRUE(same_bytes(same, parameter)) << name;
      ++count;
    }
  });
  EXPECT_EQ(count + copies, wanted.size());
}

/// Trains in `world`, and checks the parameters.
inline void expect_trained(const ShardedTask& task, const World& world, const ShardedSettings& settings,
                           const NamedTensors& wanted, int microbatches = 1) {
  launch(world, [&](Rank& rank) {
    ShardedDataParallel sharded(*task.make(), rank.comm, task.with(settings));
    const auto optimizer = task.optimizer(sharded.shards());
    train_sharded(task, sharded, *optimizer, rank, microbatches);
    expect_parameters(wanted, sharded, task.tied.size());
  });
}

inline const char* text_of(Sharded sharded) {
  return sharded == Sharded::optimizer ? "optimizer" : sharded == Sharded::gradients ? "gradients" : "parameters";
}

}  // namespace stagecoach::test
