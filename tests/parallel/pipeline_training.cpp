#include "tests/parallel/pipeline_training.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "core/autograd/backward.h"
#include "core/ops.h"
#include "nn/layers.h"
#include "nn/optimizer.h"
#include "nn/residual_blocks.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/pipeline/split.h"
#include "parallel/schedule/gradient_order.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/simulate.h"
#include "tests/support/tensors.h"

namespace stagecoach::test {
namespace {

std::unique_ptr<Optimizer> optimizer_for(const Module& model) {
  return make_optimizer(OptimizerKind::sgd, model.named_parameters(), 0.05, 0.9);
}

/// Runs the schedule as Pipeline::run does. After each action it counts, over the stages of this rank, the
/// micro-batches in flight and the gradients that wait for their turn; their maxima must be those that the schedule
/// predicts.
void run_and_check_peaks(Pipeline& pipeline, const Schedule& schedule, StepData data, Hooks hooks) {
  std::size_t max_alive = 0;
  std::size_t max_waiting = 0;
  const auto rank = static_cast<std::size_t>(pipeline.rank());
  pipeline.begin(schedule, std::move(data), std::move(hooks));
  for (const Action& action : schedule.ranks[rank]) {
    pipeline.perform(action);
    std::size_t alive = 0;
    std::size_t waiting = 0;
    for (int s = 0; s < schedule.stage_count(); ++s) {
      if (schedule.holds(pipeline.rank(), s)) {
        alive += pipeline.stage(s).alive();
        waiting += pipeline.stage(s).waiting_gradients();
      }
    }
    max_alive = std::max(max_alive, alive);
    max_waiting = std::max(max_waiting, waiting);
  }
  pipeline.finish();
  EXPECT_EQ(max_alive, static_cast<std::size_t>(peak_activations(schedule)[rank]));
  EXPECT_EQ(max_waiting, static_cast<std::size_t>(peak_waiting_gradients(schedule)[rank]));
}

}  // namespace

Shape Task::shape_of(std::int64_t count) const {
  std::vector<std::int64_t> extents{count};
  extents.insert(extents.end(), sample.begin(), sample.end());
  return Shape(extents.data(), static_cast<int>(extents.size()));
}

Model uneven_model() {
  auto model = std::make_shared<Sequential>();
  constexpr std::int64_t kWidths[] = {6, 9, 3, 7, 12, 5, 8, 4, 10, 6, 11, 3, 9, 7, 5, 6, 4};
  for (int i = 0; i < 16; ++i) {
    model->add(fmt::format("fc{}", i), std::make_shared<Linear>(kWidths[i], kWidths[i + 1]));
    model->add(fmt::format("relu{}", i), std::make_shared<ReLU>());
  }
  return model;
}

Model model_with_dropout() {
  const Model plain = uneven_model();
  auto model = std::make_shared<Sequential>();
  for (int i = 0; i < plain->size(); ++i) {
    model->add(plain->name(i), plain->layer(i));
    if (i % 4 == 1) {
      model->add(fmt::format("drop{}", i), std::make_shared<Dropout>(0.25, kSeed, fmt::format("drop{}", i)));
    }
  }
  return model;
}

Model image_model() {
  auto model = std::make_shared<Sequential>();
  model->add("conv", std::make_shared<Conv2d>(3, 4, 3, Conv2dSettings{.padding = 1}, Bias::no));
  model->add("bn", std::make_shared<BatchNorm2d>(4));
  model->add("relu", std::make_shared<ReLU>());
  model->add("block1", std::make_shared<BasicBlock>(4, 4, 1));
  model->add("block2", std::make_shared<BasicBlock>(4, 6, 2));
  model->add("pool", std::make_shared<GlobalAveragePool>());
  model->add("fc", std::make_shared<Linear>(6, 4));
  return model;
}

Batch::Batch(const Task& task, int microbatches, int step) : count(2 * microbatches - 1) {
  images = random_tensor(task.shape_of(count), fmt::format("images {}", step), DType::float32);
  labels = random_labels(count, task.classes);
}

std::int64_t Batch::size(int i) const { return std::min<std::int64_t>(2, count - 2 * i); }

void Trained::note(int step, const NamedTensors& parameters) {
  for (const auto& [name, parameter] : parameters) {
    squares[fmt::format("{}/{}", step, name)] = sum_of_squares(parameter.grad());
  }
}

void Trained::finish(const Module& model) {
  for (const auto& [name, tensor] : model.named_parameters()) {
    tensors[name] = tensor.to(Device{}).clone();
  }
  for (const auto& [name, tensor] : model.named_buffers()) {
    tensors[name] = tensor.to(Device{}).clone();
  }
}

Trained on_one_device(const Task& task, int microbatches) {
  const Model model = task.make();
  model->materialize(kSeed);
  const auto optimizer = optimizer_for(*model);
  Trained result;
  for (int step = 0; step < task.steps; ++step) {
    const Batch batch(task, microbatches, step);
    for (int i = 0; i < microbatches; ++i) {
      const BatchScope scope(BatchPosition{step, 2 * i});
      const Tensor loss = cross_entropy(model->forward(batch.images_of(i, {})), batch.labels_of(i, {}), Reduction::sum);
      backward(loss, Tensor::full({}, 1.0 / static_cast<double>(batch.count)));
      result.losses[fmt::format("{}/{}", step, i)] = loss.item();
    }
    result.note(step, model->named_parameters());
    optimizer->step();
    optimizer->zero_grad();
  }
  result.finish(*model);
  return result;
}

void train_rank(Rank& rank, const Task& task, const Schedule& schedule, const std::vector<Shape>& entering,
                Stage::Recompute recompute, Trained& result, std::mutex& mutex) {
  const Model model = task.make();
  const auto parts = stages_of(*model, split_by_layers(model->size(), schedule.stage_count()));
  Sequential mine;
  std::map<int, Stage> stages;
  for (int s = 0; s < schedule.stage_count(); ++s) {
    if (schedule.holds(rank.index, s)) {
      const auto& part = parts[static_cast<std::size_t>(s)];
      part->materialize(kSeed, rank.device);
      for (int layer = 0; layer < part->size(); ++layer) {
        mine.add(part->name(layer), part->layer(layer));
      }
      stages.emplace(s, Stage(part, recompute));
    }
  }
  const auto optimizer = optimizer_for(mine);
  Pipeline pipeline(std::move(stages), entering, schedule, rank.comm);
  for (int step = 0; step < task.steps; ++step) {
    const Batch batch(task, schedule.microbatches, step);
    StepData data{[&](int i) { return batch.images_of(i, rank.device); },
                  [&](int i) { return batch.labels_of(i, rank.device); },
                  {}};
    data.position = {step, 0};
    for (int i = 0; i < schedule.microbatches; ++i) {
      data.samples.push_back(batch.size(i));
    }
    const auto note_loss = [&](int i, const Tensor& loss, const Tensor&) {
      const std::lock_guard lock(mutex);
      result.losses[fmt::format("{}/{}", step, i)] = loss.item();
    };
    run_and_check_peaks(pipeline, schedule, data, {.see_logits = note_loss});
    const std::lock_guard lock(mutex);
    result.note(step, mine.named_parameters());
    optimizer->step();
    optimizer->zero_grad();
  }
  const std::lock_guard lock(mutex);
  result.finish(mine);
}

std::vector<Shape> entering_stages(const Task& task, int stages) {
  const Model whole = task.make();
  whole->materialize(kSeed);
  return shapes_entering(*whole, split_by_layers(whole->size(), stages), task.shape_of(1));
}

Trained in_pipeline(const Task& task, const Schedule& table, Stage::Recompute recompute) {
  const Schedule schedule = table.is_lowered ? table : lower(table);
  Trained result;
  const auto entering = entering_stages(task, schedule.stage_count());
  std::mutex mutex;
  launch({.ranks = schedule.rank_count()},
         [&](Rank& rank) { train_rank(rank, task, schedule, entering, recompute, result, mutex); });
  return result;
}

void expect_equal(const Trained& wanted, const Trained& got) {
  ASSERT_EQ(wanted.tensors.size(), got.tensors.size());
  for (const auto& [name, tensor] : wanted.tensors) {
    ASSERT_TRUE(got.tensors.contains(name)) << name;
    EXPECT_TRUE(same_bytes(got.tensors.at(name), tensor)) << name;
  }
  EXPECT_EQ(wanted.squares, got.squares) << "gradient norms";
  EXPECT_EQ(wanted.losses, got.losses);
}

}  // namespace stagecoach::test
