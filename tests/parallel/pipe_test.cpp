// A Pipe with a loss, inputs, a schedule and an optimizer of one's own trains what one device trains, bit for bit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "core/autograd/backward.h"
#include "core/ops.h"
#include "parallel/parallel.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/schedule_kinds.h"
#include "parallel/schedule/text.h"
#include "tests/parallel/own_task.h"
#include "tests/parallel/small_model.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace stagecoach {
namespace {

using test::expect_equal;
using test::expect_pipe_trains_as_one_device;
using test::fails_with;
using test::kMeanSquares;
using test::kTaskSeed;
using test::kTaskSteps;
using test::OwnTask;
using test::random_tensor;
using test::same_bytes;
using test::small_model;
using test::squared_error;
using test::summed_squared_error;

/// For two tokens [N, 2].
std::shared_ptr<Sequential> token_model() {
  auto model = std::make_shared<Sequential>();
  model->add("embedding", std::make_shared<Embedding>(5, 4)).add("flatten", std::make_shared<Flatten>());
  model->add("fc1", std::make_shared<Linear>(8, 8)).add("fc2", std::make_shared<Linear>(8, 3));
  return model;
}

TEST(PipeWithOwnLoss, WeighsUnevenMicroBatchesByTheirSamples) {
  expect_pipe_trains_as_one_device({});
  expect_pipe_trains_as_one_device({.loss = {summed_squared_error, Reduction::sum}});
}

TEST(PipeWithOwnLoss, TakesTokensAndTargetsOfAnyType) {
  const Tensor tokens = Tensor::from(std::vector<std::int32_t>{0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 4, 4, 1, 1}, {7, 2});
  expect_pipe_trains_as_one_device({.make = token_model, .x = tokens});
  const LossFunction own_cross_entropy(
      [](const Tensor& output, const Tensor& labels) { return cross_entropy(output, labels.reshape({-1})); },
      Reduction::mean);
  expect_pipe_trains_as_one_device({.make = token_model,
                                    .x = tokens,
                                    .target = test::random_labels(7, 3).reshape({7, 1}),
                                    .loss = own_cross_entropy});
}

TEST(PipeWithOwnLoss, ClipsTheNormOfAllLayers) { expect_pipe_trains_as_one_device({.max_norm = 0.01}); }

TEST(PipeWithOwnLoss, IsThatOfDataParallelToo) {
  const OwnTask task{.chunks = 2};
  const auto wanted = task.on_one_device();
  DataParallel parallel(task.make, {.ranks = 2, .loss = task.loss, .optimizer = task.optimizer, .seed = kTaskSeed});
  for (int step = 0; step < kTaskSteps; ++step) {
    parallel.train_step(task.x, task.target);
  }
  expect_equal(wanted->named_parameters(), parallel.model().named_parameters());
}

TEST(PipeWithOwnLoss, AccumulatesTheGradientsOfSeveralBatches) {
  const OwnTask task;
  const auto wanted = task.make();
  wanted->materialize(kTaskSeed);
  task.accumulate_gradients(*wanted, 0);
  task.accumulate_gradients(*wanted, 0, task.x.size(0));  // with other masks
  const auto model = task.make();
  Pipe pipe = task.pipe(model, {.ranks = 2});
  Tensor output;
  pipe.backward(task.x, task.target, &output);
  pipe.backward(task.x, task.target);
  EXPECT_EQ(output.shape(), task.target.shape());
  const NamedTensors parameters = model->named_parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_TRUE(same_bytes(wanted->named_parameters()[i].second.grad(), parameters[i].second.grad()));
  }
}

TEST(PipeWithOwnLoss, CallsGradientHooksForEachMicroBatch) {
  const OwnTask task;
  const auto model = task.make();
  Pipe pipe = task.pipe(model, {.ranks = 2});
  int calls = 0;  // by one rank
  model->named_parameters()[0].second.set_gradient_hook([&](Tensor& leaf) { calls += leaf.grad().defined() ? 1 : 0; });
  pipe.backward(task.x, task.target);
  EXPECT_EQ(calls, task.chunks);
}

/// Trains with a loss outside of the pipe. Returns the gradient of the input in the last step.
Tensor train_outside(const OwnTask& task, Pipe& pipe) {
  Tensor x = task.x.detach().set_requires_grad(true);
  for (int step = 0; step < kTaskSteps; ++step) {
    x.zero_grad();
    const Tensor output = pipe.forward_for_loss(x);
    backward(summed_squared_error(output, task.target.to(output.device())),
             Tensor::full({}, 1.0 / 7, DType::float32, output.device()));
    pipe.step();
    pipe.zero_grad();
  }
  return x.grad();
}

TEST(PipeForLoss, RunsTheBackwardOfAnySchedule) {
  const OwnTask task{.loss = {summed_squared_error, Reduction::sum}};
  const auto wanted = task.on_one_device();
  Tensor gradient;
  for (const ScheduleKind& kind : schedule_kinds()) {
    for (const bool recompute : {false, true}) {
      SCOPED_TRACE(fmt::format("{}, recompute {}", kind.name, recompute));
      const auto model = task.make();
      Pipe pipe = task.pipe(model, {.schedule = kind.name, .ranks = 3, .recompute = recompute});
      const Tensor of_input = train_outside(task, pipe);
      expect_equal(wanted->named_parameters(), model->named_parameters());
      gradient = gradient.defined() ? gradient : of_input;
      EXPECT_TRUE(same_bytes(gradient, of_input));
    }
  }
  const auto model = task.make();
  Pipe pipe = task.pipe(model, {.ranks = 1});
  EXPECT_TRUE(same_bytes(train_outside(task, pipe), gradient));
}

TEST(PipeForLoss, HasSeveralOutputsInUse) {
  const OwnTask task{.loss = {summed_squared_error, Reduction::sum}};
  const auto model = task.make();
  Pipe pipe = task.pipe(model, {.ranks = 2});
  EXPECT_FALSE(same_bytes(pipe.forward_for_loss(task.x), pipe.forward_for_loss(task.x))) << "the masks must differ";
  const BatchScope position(BatchPosition{});  // where the same random numbers are drawn
  const Tensor output = pipe.forward_for_loss(task.x);
  const Tensor twice = pipe.forward_for_loss(task.x);
  EXPECT_TRUE(same_bytes(output, twice));
  pipe.forward(task.x);  // in evaluation mode
  const auto wanted = task.make();
  wanted->materialize(kTaskSeed);
  for (const Tensor& used : {output, twice}) {
    task.accumulate_gradients(*wanted, 0);
    backward(summed_squared_error(used, task.target.to(used.device())),
             Tensor::full({}, 1.0 / 7, DType::float32, used.device()));
    EXPECT_TRUE(same_bytes(wanted->named_parameters()[0].second.grad(), model->named_parameters()[0].second.grad()));
  }
}

TEST(PipeForLoss, OutlivesItsPipe) {
  const OwnTask task;
  const auto model = task.make();
  Tensor output = task.pipe(model, {.ranks = 2}).forward_for_loss(task.x);
  backward(squared_error(output, task.target.to(output.device())));
  EXPECT_TRUE(model->named_parameters()[0].second.grad().defined());
}

TEST(PipeSchedules, MayBeValuesAndFiles) {
  const OwnTask task;
  const auto wanted = task.on_one_device();
  const Schedule table = make_schedule("interleaved", 3, 3, 2);
  const test::TemporaryFolder scratch;
  const std::filesystem::path path = scratch.path() / "table.csv";
  std::ofstream(path) << to_pytorch_text(lower(table));
  const std::vector<std::variant<std::string, Schedule>> choices{table, lower(table), path.string()};
  for (const auto& schedule : choices) {
    SCOPED_TRACE(schedule.index());
    const auto model = task.make();
    Pipe pipe(model, {.schedule = schedule, .loss = task.loss, .optimizer = task.optimizer, .seed = kTaskSeed});
    EXPECT_EQ(pipe.devices().size(), 3);
    for (int step = 0; step < kTaskSteps; ++step) {
      pipe.train_step(task.x, task.target);
    }
    expect_equal(wanted->named_parameters(), model->named_parameters());
  }
}

TEST(PipeSchedules, SayWhatDoesNotFit) {
  const Schedule table = make_schedule("gpipe", 2, 4);
  EXPECT_TRUE(fails_with<UsageError>({"for 2 ranks and 4 micro-batches", "ranks 3", "leave them out"},
                                     [&] { Pipe pipe(small_model(), {.schedule = table, .ranks = 3}); }));
  Schedule broken = table;
  broken.ranks[1].clear();
  EXPECT_TRUE(fails_with<UsageError>({"the schedule"}, [&] { Pipe pipe(small_model(), {.schedule = broken}); }));
  EXPECT_TRUE(fails_with<UsageError>({"unknown schedule", "1f1b"},
                                     [] { Pipe pipe(small_model(), {.schedule = "no/such/table.csv"}); }));
}

// The mistakes of a first program.

/// Returns the pipe of a task in which a step was made, with the gradients that it has used.
Pipe stepped_pipe(const OwnTask& task) {
  Pipe pipe = task.pipe(task.make(), {.ranks = 2});
  pipe.backward(task.x, task.target);
  pipe.step();
  return pipe;
}

TEST(PipeMistakes, AForgottenZeroGrad) {
  const OwnTask task;
  Pipe pipe = stepped_pipe(task);
  EXPECT_TRUE(fails_with<UsageError>({"call zero_grad()"}, [&] { pipe.backward(task.x, task.target); }));
  EXPECT_TRUE(fails_with<UsageError>({"call zero_grad()"}, [&] { pipe.forward_for_loss(task.x); }));
  pipe.zero_grad();
  pipe.backward(task.x, task.target);
}

TEST(PipeMistakes, ALayerThatIsUsedTwice) {
  const auto layer = std::make_shared<Linear>(4, 4);
  const auto model = std::make_shared<Sequential>();
  model->add("one", layer).add("two", layer);
  EXPECT_TRUE(fails_with<UsageError>({"'one' and as 'two'", "make two layers"}, [&] { Pipe pipe(model); }));
}

TEST(PipeMistakes, AModelWithoutParameters) {
  const auto model = std::make_shared<Sequential>();
  model->add("one", std::make_shared<ReLU>()).add("two", std::make_shared<ReLU>());
  Pipe pipe(model, {.loss = kMeanSquares});
  const Tensor x = random_tensor({4, 3}, "points", DType::float32);
  EXPECT_TRUE(fails_with<UsageError>({"a model with parameters", "call forward"}, [&] { pipe.train_step(x, x); }));
  EXPECT_EQ(pipe.forward(x).shape(), x.shape());
}

TEST(PipeMistakes, ALossThatIsNoScalarOrHasNoGraph) {
  const auto with_loss = [](Tensor (*loss)(const Tensor&, const Tensor&)) {
    OwnTask task;
    task.loss = LossFunction(loss, Reduction::mean);
    task.pipe(task.make(), {.ranks = 2}).train_step(task.x, task.target);
  };
  EXPECT_TRUE(fails_with<Error>({"expected a scalar", "got float32[3, 3]", "mean or the sum"},
                                [&] { with_loss([](const Tensor& output, const Tensor&) { return output; }); }));
  EXPECT_TRUE(fails_with<Error>({"without a graph", "detach()"}, [&] {
    with_loss([](const Tensor& output, const Tensor& target) { return squared_error(output.detach(), target); });
  }));
}

TEST(PipeMistakes, TargetsOfAnotherBatchTypeOrDevice) {
  const OwnTask task;
  Pipe pipe = task.pipe(task.make(), {.ranks = 2});
  EXPECT_TRUE(fails_with<UsageError>({"expected a target [7, …]", "got float32[6, 3]"},
                                     [&] { pipe.backward(task.x, task.target.narrow(0, 6)); }));
  Pipe classifier(small_model(), {.ranks = 2});
  EXPECT_TRUE(fails_with<UsageError>({"expected labels int32[7]", "a loss of your own"},
                                     [&] { classifier.backward(task.x, task.target); }));
  const Tensor output = pipe.forward_for_loss(task.x);  // on the last rank's device
  EXPECT_TRUE(fails_with<Error>({"cpu:1", "cpu:0"}, [&] { squared_error(output, task.target); }));
}

TEST(PipeMistakes, ABackwardThatIsNotThereAnyMore) {
  const OwnTask task;
  Pipe pipe = task.pipe(task.make(), {.ranks = 2});
  EXPECT_TRUE(fails_with<UsageError>({"within NoGrad", "call forward"}, [&] {
    const NoGrad no_grad;
    pipe.forward_for_loss(task.x);
  }));
  const Tensor output = pipe.forward_for_loss(task.x);
  const Tensor loss = squared_error(output, task.target.to(output.device()));
  backward(loss, {}, RetainGraph::yes);
  EXPECT_TRUE(fails_with<Error>({"call forward_for_loss again"}, [&] { backward(loss); }));
}

TEST(PipeMistakes, AnOptimizerOfLayersWithoutMemory) {
  Pipe pipe(small_model());
  EXPECT_TRUE(fails_with<UsageError>({"call place(shape) first"}, [&] { pipe.step(); }));
}

}  // namespace
}  // namespace stagecoach
