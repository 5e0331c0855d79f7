// The wrappers train what one device trains, bit for bit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/autograd/grad_mode.h"
#include "parallel/parallel.h"
#include "parallel/schedule/schedule_kinds.h"
#include "tests/parallel/image_task.h"
#include "tests/parallel/small_model.h"
#include "tests/support/errors.h"
#include "tests/support/sanitized.h"

namespace stagecoach {
namespace {

using test::expect_equal;
using test::fails_with;
using test::ImageTask;
using test::OneDevice;
using test::random_labels;
using test::random_tensor;
using test::same_bytes;
using test::small_model;
using test::unless_sanitized;

std::vector<int> ranks_of_tasks() { return unless_sanitized<std::vector<int>>({1, 2, 3, 4}, {3}); }

class Wrappers : public ::testing::TestWithParam<ImageTask> {};
INSTANTIATE_TEST_SUITE_P(Models, Wrappers, test::image_tasks(), test::name_of_task);

TEST_P(Wrappers, PipeEqualsOneDevice) {
  const ImageTask& task = GetParam();
  OneDevice wanted(task, 4);
  const Tensor labels = ImageTask::labels();
  for (const int ranks : ranks_of_tasks()) {
    SCOPED_TRACE(fmt::format("{} ranks", ranks));
    const auto model = task.make();
    Pipe pipe(model, {.chunks = 4, .ranks = ranks, .optimizer = task.optimizer, .seed = ImageTask::kSeed});
    for (int step = 0; step < task.steps; ++step) {
      EXPECT_EQ(pipe.train_step(task.images(step), labels), wanted.losses[static_cast<std::size_t>(step)]);
    }
    EXPECT_EQ(static_cast<int>(pipe.split().size()), ranks);
    expect_equal(wanted.model->named_parameters(), model->named_parameters());
    expect_equal(wanted.model->named_buffers(), model->named_buffers());

    const NoGrad no_grad;
    wanted.model->train(false);
    EXPECT_TRUE(same_bytes(pipe.forward(task.images(0)), wanted.model->forward(task.images(0))));
    wanted.model->train(true);
  }
}

TEST_P(Wrappers, DataParallelEqualsOneDevice) {
  const ImageTask& task = GetParam();
  const Tensor labels = ImageTask::labels();
  for (const int ranks : ranks_of_tasks()) {
    SCOPED_TRACE(fmt::format("{} ranks", ranks));
    const OneDevice wanted(task, ranks);
    DataParallel parallel([&] { return task.make(); },
                          {.ranks = ranks, .optimizer = task.optimizer, .seed = ImageTask::kSeed});
    for (int step = 0; step < task.steps; ++step) {
      EXPECT_NEAR(parallel.train_step(task.images(step), labels), wanted.losses[static_cast<std::size_t>(step)], 1e-5);
    }
    expect_equal(wanted.model->named_parameters(), parallel.model().named_parameters());
    EXPECT_EQ(parallel.forward(task.images(0)).shape(), (Shape{ImageTask::kImages, 10}));
  }
}

TEST_P(Wrappers, DistributedDataParallelEqualsOneDevice) {
  const ImageTask& task = GetParam();
  const Tensor labels = ImageTask::labels();
  for (const int ranks : ranks_of_tasks()) {
    SCOPED_TRACE(fmt::format("{} ranks", ranks));
    const OneDevice wanted(task, ranks);
    launch({.ranks = ranks}, [&](Rank& rank) {
      const auto model = task.make();
      model->materialize(ImageTask::kSeed + static_cast<std::uint64_t>(rank.index),
                         rank.device);  // made equal by the wrapper
      DistributedDataParallel parallel(*model, rank.comm);
      const auto optimizer = task.optimizer(model->named_parameters());
      const Share share = share_of(ImageTask::kImages, rank.index, ranks);
      for (int step = 0; step < task.steps; ++step) {
        const Tensor images = task.images(step).narrow(share.first, share.count).to(rank.device);
        const Tensor targets = labels.narrow(share.first, share.count).to(rank.device);
        parallel.backward(cross_entropy(parallel.forward(images), targets, Reduction::sum), ImageTask::kImages);
        optimizer->step();
        optimizer->zero_grad();
      }
      expect_equal(wanted.model->named_parameters(), model->named_parameters());
    });
  }
}

TEST(Pipe, TakesBatchesOfAnySize) {
  const auto model = small_model();
  Pipe pipe(model, {.chunks = 4, .ranks = 2, .seed = ImageTask::kSeed});
  for (const std::int64_t count : {7, 4, 2, 1}) {
    const Tensor x = random_tensor({count, 4}, "points", DType::float32);
    EXPECT_GT(pipe.train_step(x, random_labels(count, 3)), 0);
    EXPECT_EQ(pipe.forward(x).shape(), (Shape{count, 3}));
  }
}

TEST(Pipe, RunsEveryScheduleOfAStep) {
  const Tensor x = random_tensor({8, 4}, "points", DType::float32);
  const auto trained = [&](PipeSettings settings) {
    const auto model = small_model();
    model->add("relu", std::make_shared<ReLU>()).add("fc3", std::make_shared<Linear>(3, 3));
    settings.chunks = 4;
    Pipe pipe(model, std::move(settings));
    pipe.train_step(x, random_labels(8, 3));
    NamedTensors copies;
    for (const auto& [name, tensor] : model->named_parameters()) {
      copies.emplace_back(name, tensor.to(Device{}).clone());
    }
    return copies;
  };
  const NamedTensors wanted = trained({.ranks = 1});
  for (const char* schedule : {"naive", "gpipe", "interleaved", "zb-h1", "zbv"}) {
    SCOPED_TRACE(schedule);
    expect_equal(wanted, trained({.schedule = schedule, .ranks = 2}));
  }
  expect_equal(wanted, trained({.ranks = 2, .split = {1, 3}, .recompute = true}));
}

TEST(Pipe, FirstStageMayHaveNoParameters) {
  const Tensor x = random_tensor({8, 4}, "points", DType::float32);
  NamedTensors wanted;
  for (const char* schedule : {"naive", "1f1b", "zb-h1"}) {
    SCOPED_TRACE(schedule);
    auto model = std::make_shared<Sequential>();
    model->add("relu", std::make_shared<ReLU>()).add("fc", std::make_shared<Linear>(4, 3));
    Pipe pipe(model, {.schedule = schedule, .ranks = 2});
    pipe.train_step(x, random_labels(8, 3));
    if (wanted.empty()) {
      wanted = model->named_parameters();
    }
    expect_equal(wanted, model->named_parameters());
  }
}

/// Returns its input: the same tensor.
class Identity final : public Module {
 public:
  Tensor forward(const Tensor& x) override { return x; }
  Shape output_shape(const Shape& input) const override { return input; }
};

/// Returns the weights after two steps of four layers, of which layer `where` is an identity and the others are linear.
NamedTensors trained_with_identity(int where, PipeSettings settings) {
  auto model = std::make_shared<Sequential>();
  for (int i = 0; i < 4; ++i) {
    const std::string name = fmt::format("layer{}", i);
    if (i == where) {
      model->add(name, std::make_shared<Identity>());
    } else {
      model->add(name, std::make_shared<Linear>(4, 4));
    }
  }
  settings.chunks = 4;
  Pipe pipe(model, std::move(settings));
  const Tensor x = random_tensor({8, 4}, "points", DType::float32);
  for (int step = 0; step < 2; ++step) {
    pipe.train_step(x, random_labels(8, 4));
  }
  return model->named_parameters();
}

TEST(Pipe, AStageMayBeALayerThatReturnsItsInput) {
  for (int where = 0; where < 4; ++where) {
    const NamedTensors wanted = trained_with_identity(where, {.ranks = 1});
    for (const ScheduleKind& kind : schedule_kinds()) {
      for (const bool recompute : {false, true}) {
        SCOPED_TRACE(fmt::format("layer {}, {}, recompute {}", where, kind.name, recompute));
        const int stages_per_rank = kind.max_chunks > 1 ? 2 : 1;
        expect_equal(wanted, trained_with_identity(where, {.schedule = kind.name,
                                                           .ranks = 4 / stages_per_rank,
                                                           .stages_per_rank = stages_per_rank,
                                                           .split = {1, 1, 1, 1},
                                                           .recompute = recompute}));
      }
    }
    expect_equal(wanted, trained_with_identity(where, {.ranks = 2}));  // a measured split
  }
}

TEST(Pipe, InterleavesTwoStagesPerRank) {
  EXPECT_EQ(Pipe(make_model("mlp"), {.schedule = "interleaved"}).schedule().stage_count(), 4);
  EXPECT_EQ(Pipe(make_model("mlp"), {.schedule = "1f1b"}).schedule().stage_count(), 2);
  EXPECT_EQ(Pipe(make_model("mlp"), {.schedule = "interleaved", .stages_per_rank = 1}).schedule().stage_count(), 2);
}

TEST(Pipe, TrainsWeightsThatWereReplacedBetweenCalls) {
  const auto model = small_model();
  Pipe pipe(model, {.ranks = 2});
  pipe.place({4, 4});
  for (auto [name, tensor] : model->named_parameters()) {
    const NoGrad no_grad;
    tensor.fill(0);
  }
  const Tensor x = random_tensor({4, 4}, "points", DType::float32);
  EXPECT_TRUE(same_bytes(pipe.forward(x), Tensor::zeros({4, 3})));
}

TEST(DataParallel, TakesBatchesWithFewerImagesThanRanks) {
  DataParallel parallel(small_model, {.ranks = 4});
  const Tensor x = random_tensor({2, 4}, "points", DType::float32);
  EXPECT_GT(parallel.train_step(x, random_labels(2, 3)), 0);
}

/// Has a second layer that is not used.
class HalfUsed final : public Module {
 public:
  HalfUsed() {
    add_child("used", used_);
    add_child("unused", std::make_shared<Linear>(4, 3));
  }
  Tensor forward(const Tensor& x) override { return used_->forward(x); }
  Shape output_shape(const Shape& input) const override { return used_->output_shape(input); }

 private:
  std::shared_ptr<Module> used_ = std::make_shared<Linear>(4, 3);
};

/// Returns the names of the parameters that a step changes.
std::vector<std::string> changed_by_a_step(DataParallel& parallel) {
  const NamedTensors parameters = parallel.model().named_parameters();
  std::vector<Tensor> before;
  for (const auto& [name, tensor] : parameters) {
    before.push_back(tensor.clone());
  }
  parallel.train_step(random_tensor({4, 4}, "points", DType::float32), random_labels(4, 3));
  std::vector<std::string> changed;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!same_bytes(before[i], parameters[i].second)) {
      changed.push_back(parameters[i].first);
    }
  }
  return changed;
}

TEST(DataParallel, DoesNotTrainUnusedParameters) {
  DataParallel parallel([] { return std::make_shared<HalfUsed>(); }, {.optimizer = sgd({.weight_decay = 0.1})});
  EXPECT_EQ(changed_by_a_step(parallel), (std::vector<std::string>{"used.weight", "used.bias"}));
}

TEST(DataParallel, DoesNotTrainFrozenParameters) {
  DataParallel parallel(small_model, {.optimizer = sgd({.weight_decay = 0.1})});
  for (auto& [name, tensor] : parallel.model().named_parameters()) {
    Tensor(tensor).set_requires_grad(name.starts_with("fc2"));
  }
  EXPECT_EQ(changed_by_a_step(parallel), (std::vector<std::string>{"fc2.weight", "fc2.bias"}));
}

template <class Wrapper>
void expect_learning_rate_is_followed(Wrapper& wrapper, const Module& model) {
  const Tensor x = random_tensor({4, 4}, "points", DType::float32);
  wrapper.train_step(x, random_labels(4, 3));
  EXPECT_TRUE(fails_with<UsageError>({"learning rate", "got -1"}, [&] { wrapper.set_learning_rate(-1); }));
  EXPECT_EQ(wrapper.learning_rate(), 0.5);
  wrapper.set_learning_rate(0);
  EXPECT_EQ(wrapper.learning_rate(), 0);
  for (const auto& [name, tensor] : model.named_parameters()) {
    const Tensor before = tensor.clone();
    wrapper.train_step(x, random_labels(4, 3));
    EXPECT_TRUE(same_bytes(before, tensor)) << name;
  }
}

TEST(Pipe, ChangesTheLearningRate) {
  const auto model = small_model();
  Pipe pipe(model, {.optimizer = sgd({.learning_rate = 0.5})});
  expect_learning_rate_is_followed(pipe, *model);

  const auto unplaced = small_model();
  Pipe later(unplaced, {.optimizer = sgd({.learning_rate = 0.1})});
  later.set_learning_rate(0.5);  // before the first batch
  expect_learning_rate_is_followed(later, *unplaced);
}

TEST(DataParallel, ChangesTheLearningRate) {
  DataParallel parallel(small_model, {.optimizer = sgd({.learning_rate = 0.5})});
  expect_learning_rate_is_followed(parallel, parallel.model());
}

TEST(Pipe, MeasuresAModelWhoseBatchNormNeedsTwoImages) {
  Pipe pipe(make_model("resnet18"), {.ranks = 2});
  EXPECT_EQ(pipe.forward(Tensor::zeros({1, 3, 8, 8})).shape(), (Shape{1, 10}));
}

TEST(DistributedDataParallel, AccumulatesMicroBatches) {
  launch({.ranks = 2}, [](Rank& rank) {
    const auto model = small_model();
    model->materialize(1, rank.device);
    DistributedDataParallel parallel(*model, rank.comm);
    const Tensor x = random_tensor({4, 4}, "points", DType::float32, rank.device);
    const Tensor labels = random_labels(4, 3, rank.device);
    const auto loss = [&] { return cross_entropy(parallel.forward(x), labels, Reduction::sum); };
    parallel.accumulate(loss(), 16);
    parallel.backward(loss(), 16);
    const Tensor twice = model->named_parameters()[0].second.grad().clone();
    for (auto [name, parameter] : model->named_parameters()) {
      parameter.zero_grad();
    }
    parallel.backward(loss(), 8);  // four equal shares of 1/16 are two of 1/8
    EXPECT_TRUE(test::close(model->named_parameters()[0].second.grad(), twice, 1e-6, 1e-5));
    EXPECT_TRUE(fails_with<Error>({"zero_grad"}, [&] { parallel.backward(loss(), 8); }));
    EXPECT_TRUE(fails_with<Error>({"zero_grad"}, [&] { parallel.backward(loss(), 8); })) << "as before: still there";
    EXPECT_TRUE(fails_with<Error>({"at least 1 sample"}, [&] { parallel.accumulate(loss(), 0); }));
  });
}

}  // namespace
}  // namespace stagecoach
