// The wrappers train what one device trains, bit for bit, and tell the caller what is wrong.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "core/autograd/backward.h"
#include "core/autograd/node.h"
#include "core/ops.h"
#include "datasets/shares.h"
#include "nn/layers.h"
#include "nn/models.h"
#include "nn/running_statistics.h"
#include "parallel/parallel.h"
#include "tests/support/errors.h"
#include "tests/support/sanitized.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::random_labels;
using test::random_tensor;
using test::same_bytes;
using test::unless_sanitized;

constexpr std::int64_t kImages = 10;
constexpr std::uint64_t kSeed = 5;

struct Task {
  const char* name;
  const char* model;
  std::int64_t image_size;
  int steps;
  MakeOptimizer optimizer;
  std::shared_ptr<Sequential> make() const { return make_model(model); }
  Tensor images(int step) const {
    return random_tensor({kImages, 3, image_size, image_size}, fmt::format("images {}", step), DType::float32);
  }
};
void PrintTo(const Task& task, std::ostream* out) { *out << task.name; }

/// One device that accumulates the gradients of `microbatches` micro-batches.
struct OneDevice {
  OneDevice(const Task& task, int microbatches) : model(task.make()) {
    model->materialize(kSeed);
    const auto optimizer = task.optimizer(model->named_parameters());
    const Tensor labels = random_labels(kImages, 10);
    const double share = 1.0 / static_cast<double>(kImages);
    for (int step = 0; step < task.steps; ++step) {
      const std::vector<Tensor> images = micro_batches(task.images(step), microbatches);
      const std::vector<Tensor> targets = micro_batches(labels, microbatches);
      double loss_sum = 0;
      for (std::size_t i = 0; i < images.size(); ++i) {
        const Tensor loss = cross_entropy(model->forward(images[i]), targets[i], Reduction::sum);
        backward(loss, Tensor::full({}, share));
        loss_sum += loss.item();
      }
      losses.push_back(loss_sum / static_cast<double>(kImages));
      optimizer->step();
      optimizer->zero_grad();
    }
  }
  std::shared_ptr<Sequential> model;
  std::vector<double> losses;
};

void expect_equal(const NamedTensors& wanted, const NamedTensors& got) {
  ASSERT_EQ(wanted.size(), got.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(wanted[i].first, got[i].first);
    EXPECT_TRUE(same_bytes(wanted[i].second, got[i].second)) << got[i].first;
  }
}

std::vector<Task> tasks() {
  const Task convnet{"ConvnetSgd", "convnet", 32, 3, sgd({.momentum = 0.9})};
  const Task resnet{"Resnet18Adam", "resnet18", 16, 2, adam()};
  return unless_sanitized<std::vector<Task>>({convnet,
                                              {"ConvnetAdam", "convnet", 32, 3, adam()},
                                              {"Resnet18Sgd", "resnet18", 16, 2, sgd({.momentum = 0.9})},
                                              resnet},
                                             {convnet, resnet});
}

std::vector<int> ranks_of_tasks() { return unless_sanitized<std::vector<int>>({1, 2, 3, 4}, {3}); }

class Wrappers : public ::testing::TestWithParam<Task> {};
INSTANTIATE_TEST_SUITE_P(Models, Wrappers, ::testing::ValuesIn(tasks()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(Wrappers, PipeEqualsOneDevice) {
  const Task& task = GetParam();
  OneDevice wanted(task, 4);
  const Tensor labels = random_labels(kImages, 10);
  for (const int ranks : ranks_of_tasks()) {
    SCOPED_TRACE(fmt::format("{} ranks", ranks));
    const auto model = task.make();
    Pipe pipe(model, {.chunks = 4, .ranks = ranks, .optimizer = task.optimizer, .seed = kSeed});
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
  const Task& task = GetParam();
  const Tensor labels = random_labels(kImages, 10);
  for (const int ranks : ranks_of_tasks()) {
    SCOPED_TRACE(fmt::format("{} ranks", ranks));
    const OneDevice wanted(task, ranks);
    DataParallel parallel([&] { return task.make(); }, {.ranks = ranks, .optimizer = task.optimizer, .seed = kSeed});
    for (int step = 0; step < task.steps; ++step) {
      EXPECT_NEAR(parallel.train_step(task.images(step), labels), wanted.losses[static_cast<std::size_t>(step)], 1e-5);
    }
    expect_equal(wanted.model->named_parameters(), parallel.model().named_parameters());
    EXPECT_EQ(parallel.forward(task.images(0)).shape(), (Shape{kImages, 10}));
  }
}

TEST_P(Wrappers, DistributedDataParallelEqualsOneDevice) {
  const Task& task = GetParam();
  const Tensor labels = random_labels(kImages, 10);
  for (const int ranks : ranks_of_tasks()) {
    SCOPED_TRACE(fmt::format("{} ranks", ranks));
    const OneDevice wanted(task, ranks);
    launch({.ranks = ranks}, [&](Rank& rank) {
      const auto model = task.make();
      model->materialize(kSeed + static_cast<std::uint64_t>(rank.index), rank.device);  // made equal by the wrapper
      DistributedDataParallel parallel(*model, rank.comm);
      const auto optimizer = task.optimizer(model->named_parameters());
      const Share share = share_of(kImages, rank.index, ranks);
      for (int step = 0; step < task.steps; ++step) {
        const Tensor images = task.images(step).narrow(share.first, share.count).to(rank.device);
        const Tensor targets = labels.narrow(share.first, share.count).to(rank.device);
        parallel.backward(cross_entropy(parallel.forward(images), targets, Reduction::sum), kImages);
        optimizer->step();
        optimizer->zero_grad();
      }
      expect_equal(wanted.model->named_parameters(), model->named_parameters());
    });
  }
}

/// Two layers, for points [N, 4].
std::shared_ptr<Sequential> small_model() {
  auto model = std::make_shared<Sequential>();
  model->add("fc1", std::make_shared<Linear>(4, 8)).add("fc2", std::make_shared<Linear>(8, 3));
  return model;
}

TEST(Pipe, TakesBatchesOfAnySize) {
  const auto model = small_model();
  Pipe pipe(model, {.chunks = 4, .ranks = 2, .seed = kSeed});
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

TEST(Pipe, RefusesWhatCannotRun) {
  EXPECT_TRUE(fails_with<UsageError>({"Pipe: expected a model with layers"},
                                     [] { Pipe pipe(std::make_shared<Sequential>()); }));
  EXPECT_TRUE(fails_with<UsageError>({"2 layers cannot be split into 3 stages"},
                                     [] { Pipe pipe(small_model(), {.ranks = 3}); }));
  EXPECT_TRUE(
      fails_with<UsageError>({"unknown schedule", "1f1b"}, [] { Pipe pipe(small_model(), {.schedule = "fast"}); }));
  EXPECT_TRUE(fails_with<UsageError>({"learning rate", "got -1"},
                                     [] { Pipe pipe(small_model(), {.optimizer = adam({.learning_rate = -1})}); }));
  EXPECT_TRUE(fails_with<UsageError>({"Pipe: expected a split into 2 stages", "got 1"},
                                     [] { Pipe pipe(small_model(), {.ranks = 2, .split = {2}}); }));
  const auto full = small_model();
  full->materialize(1);
  EXPECT_TRUE(fails_with<Error>({"already has memory"}, [&] {
    Pipe pipe(full, {.ranks = 2});
    pipe.place({4, 4});
  }));
}

TEST(Pipe, RefusesABatchOfAnotherShapeAndGoesOn) {
  Pipe pipe(small_model(), {.ranks = 2});
  const Tensor x = random_tensor({4, 4}, "points", DType::float32);
  const Tensor labels = random_labels(4, 3);
  EXPECT_TRUE(fails_with<Error>({"layer 'fc1'"}, [&] { pipe.train_step(Tensor::zeros({4, 5}), labels); }));
  pipe.train_step(x, labels);
  EXPECT_TRUE(fails_with<UsageError>({"expected images of shape [N, …] with [1, 4] for one, got [4, 5]"}, [&] {
    pipe.train_step(Tensor::zeros({4, 5}), labels);
  }));
  EXPECT_TRUE(fails_with<UsageError>({"expected images float32", "float64"}, [&] {
    pipe.forward(Tensor::zeros({4, 4}, DType::float64));
  }));
  EXPECT_TRUE(fails_with<UsageError>({"expected labels int32[4]", "int32[3]"},
                                     [&] { pipe.train_step(x, random_labels(3, 3)); }));
  EXPECT_TRUE(fails_with<UsageError>({"expected labels int32[4]", "undefined"}, [&] { pipe.train_step(x, {}); }));
  pipe.train_step(x, labels);
}

/// A layer that fails when it gets a large number.
class Fuse final : public Module {
 public:
  Tensor forward(const Tensor& x) override {
    if (x.to_vector<float>()[0] > 1000) {
      throw Error("the fuse has blown");
    }
    return relu(x);
  }
  Shape output_shape(const Shape& input) const override { return input; }
};

std::shared_ptr<Sequential> model_with_fuse() {
  auto model = std::make_shared<Sequential>();
  model->add("relu", std::make_shared<ReLU>()).add("fuse", std::make_shared<Fuse>());
  model->add("fc", std::make_shared<Linear>(4, 3));
  return model;
}

template <class Wrapper>
void expect_error_of_a_rank(Wrapper& wrapper) {
  const Tensor labels = random_labels(4, 3);
  EXPECT_GT(wrapper.train_step(Tensor::full({4, 4}, 1), labels), 0);
  const auto blow = [&] { wrapper.train_step(Tensor::full({4, 4}, 1e6), labels); };
  EXPECT_TRUE(fails_with<Error>({"rank ", "the fuse has blown"}, blow));
  EXPECT_TRUE(fails_with<Error>({"earlier error", "the fuse has blown"}, blow));
}

TEST(Pipe, GivesTheErrorOfARankToTheCaller) {
  Pipe pipe(model_with_fuse(), {.ranks = 3, .split = {1, 1, 1}});
  expect_error_of_a_rank(pipe);
}

TEST(DataParallel, GivesTheErrorOfARankToTheCaller) {
  DataParallel parallel(model_with_fuse, {.ranks = 3});
  expect_error_of_a_rank(parallel);
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

TEST(DataParallel, RefusesWhatCannotRun) {
  const auto model = small_model();
  EXPECT_TRUE(fails_with<UsageError>({"returns a new model, got the same one twice"},
                                     [&] { DataParallel parallel([&] { return model; }); }));
  EXPECT_TRUE(fails_with<UsageError>({"learning rate", "got -1"}, [] {
    DataParallel parallel(small_model, {.optimizer = adam({.learning_rate = -1})});
  }));
  EXPECT_TRUE(fails_with<UsageError>({"ranks, got 0"}, [] { DataParallel parallel(small_model, {.ranks = 0}); }));
  EXPECT_TRUE(fails_with<UsageError>({"DataParallel: expected a function that returns a new model"},
                                     [] { DataParallel parallel([] { return std::shared_ptr<Module>(); }); }));
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

/// A layer whose backward takes a while and then fails.
class LateFailure final : public Module {
 public:
  Tensor forward(const Tensor& x) override {
    Tensor y = x.detach();
    y.set_grad_node(std::make_shared<FailingNode>(x));
    return y;
  }
  Shape output_shape(const Shape& input) const override { return input; }

 private:
  class FailingNode final : public Node {
   public:
    explicit FailingNode(const Tensor& x) : Node("late failure", {x}) {}
    Gradients backward(const Tensor&, const NeedsInputGrad&) override {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      throw Error("the backward has failed");
    }
  };
};

std::shared_ptr<Sequential> model_with_late_failure() {
  auto model = std::make_shared<Sequential>();
  model->add("fc1", std::make_shared<Linear>(4, 8)).add("failure", std::make_shared<LateFailure>());
  model->add("fc2", std::make_shared<Linear>(8, 3));
  return model;
}

TEST(Pipe, MakesNoStepIfABackwardFails) {
  const auto model = model_with_late_failure();
  Pipe pipe(model, {.chunks = 1, .ranks = 2, .split = {2, 1}});
  pipe.place({4, 4});
  const Tensor weight = model->layer(2)->named_parameters()[0].second;  // of rank 1, whose backward succeeds
  const Tensor before = weight.clone();
  EXPECT_TRUE(fails_with<Error>({"the backward has failed"}, [&] {
    pipe.train_step(random_tensor({4, 4}, "points", DType::float32), random_labels(4, 3));
  }));
  EXPECT_TRUE(same_bytes(before, weight));
}

TEST(Pipe, MeasuresAModelWhoseBatchNormNeedsTwoImages) {
  Pipe pipe(make_model("resnet18"), {.ranks = 2});
  EXPECT_EQ(pipe.forward(Tensor::zeros({1, 3, 8, 8})).shape(), (Shape{1, 10}));
}

TEST(Pipe, GoesOnAfterAFailedMeasurement) {
  auto model = std::make_shared<Sequential>();
  model->add("block", model_with_late_failure()).add("fc", std::make_shared<Linear>(3, 3));  // the block has weights
  Pipe pipe(model, {.ranks = 2});
  const auto place = [&] { pipe.place({4, 4}); };
  EXPECT_TRUE(fails_with<Error>({"the backward has failed"}, place));
  EXPECT_TRUE(fails_with<Error>({"the backward has failed"}, place)) << "and not that a layer has memory already";
}

TEST(DistributedDataParallel, SaysThatAnEarlierBackwardFailed) {
  const auto model = model_with_late_failure();
  model->materialize(1);
  launch({.ranks = 1}, [&](Rank& rank) {
    DistributedDataParallel parallel(*model, rank.comm);
    const auto step = [&] {
      const Tensor logits = parallel.forward(Tensor::full({4, 4}, 1));
      parallel.backward(cross_entropy(logits, random_labels(4, 3), Reduction::sum), 4);
    };
    EXPECT_TRUE(fails_with<Error>({"expected a loss []"}, [&] { parallel.backward(Tensor::full({}, 1), 4); }));
    EXPECT_TRUE(fails_with<Error>({"the backward has failed"}, step)) << "the refused loss has changed nothing";
    EXPECT_TRUE(fails_with<Error>({"an earlier backward failed", "resume"}, step));
  });
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
