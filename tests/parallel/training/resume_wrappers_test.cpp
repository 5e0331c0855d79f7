/// @file
/// Programs that train with the wrappers save their state and go on from it.

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "core/ops.h"
#include "datasets/generated.h"
#include "datasets/loader.h"
#include "datasets/shares.h"
#include "nn/layers.h"
#include "parallel/parallel.h"
#include "parallel/training/replica_role.h"
#include "parallel/training/run.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace stagecoach::test {
namespace {

constexpr std::int64_t kBatch = 16;

std::shared_ptr<Sequential> small_classifier() {
  auto model = std::make_shared<Sequential>();
  model->add("flatten", std::make_shared<Flatten>()).add("fc1", std::make_shared<Linear>(3 * 32 * 32, 8));
  model->add("dropout", std::make_shared<Dropout>(0.2, 1, "dropout")).add("fc2", std::make_shared<Linear>(8, 10));
  return model;
}

/// Runs all epochs that are left; `step` trains on a batch and returns the mean loss.
void run_epochs(Run& run, Loader& loader, const std::function<double(const Batch& batch)>& step) {
  for (Epoch& epoch : run.epochs()) {
    for (const Batch& batch : epoch.training_batches(loader)) {
      epoch.train_sums().add_loss(step(batch) * static_cast<double>(batch.inputs.size(0)));
    }
  }
}

using Train = std::function<void(const RunOptions& options, const TrainTest& data, int ranks)>;

void train_pipe(const RunOptions& options, const TrainTest& data, int ranks) {
  Pipe pipe(small_classifier(), {.ranks = ranks, .optimizer = adam()});
  Run run(options, Device{});
  pipe.place({kBatch, 3, 32, 32});
  run.set_up_checkpoints(data, pipe.model(), pipe.optimizer());
  Loader loader(data.train, {.batch_size = kBatch});
  run_epochs(run, loader,
             [&](const Batch& batch) { return pipe.train_step(model_input(batch.inputs), batch.targets); });
}

void train_data_parallel(const RunOptions& options, const TrainTest& data, int ranks) {
  DataParallel parallel(small_classifier, {.ranks = ranks, .optimizer = adam()});
  Run run(options, Device{});
  run.set_up_checkpoints(data, parallel.model(), parallel.optimizer());
  Loader loader(data.train, {.batch_size = kBatch});
  run_epochs(run, loader,
             [&](const Batch& batch) { return parallel.train_step(model_input(batch.inputs), batch.targets); });
}

void train_distributed(const RunOptions& options, const TrainTest& data, int ranks) {
  launch({.ranks = ranks}, [&](Rank& rank) {
    const auto model = small_classifier();
    Run run(options, rank.comm, replica_role(*model));
    model->materialize(1, rank.device);
    DistributedDataParallel parallel(*model, rank.comm);
    const auto optimizer = adam()(model->named_parameters());
    run.set_up_checkpoints(data, *model, *optimizer);
    Loader loader(data.train, {.batch_size = kBatch, .shard = rank.index, .shards = ranks});
    run_epochs(run, loader, [&](const Batch& batch) {
      const BatchScope scope(
          BatchPosition{optimizer->steps_done(), share_of(batch.global_size, rank.index, ranks).first});
      const Tensor logits = parallel.forward(model_input(batch.inputs).to(rank.device));
      const Tensor loss = cross_entropy(logits, batch.targets.to(rank.device), Reduction::sum);
      parallel.backward(loss, batch.global_size);
      optimizer->step();
      optimizer->zero_grad();
      return loss.item() / static_cast<double>(batch.inputs.size(0));
    });
  });
}

/// Two replicas, which clip the norm of the gradients of all ranks.
void train_mesh(const RunOptions& options, const TrainTest& data, int stages) {
  const MeshSizes sizes{.data = 2, .pipeline = stages};
  launch({.ranks = sizes.ranks()}, [&](Rank& rank) {
    const auto make = [](const LayerFactory&) { return small_classifier(); };
    MeshPipe pipe(rank.comm, sizes, make, {.chunks = 2, .optimizer = adam()});
    Run run(options, rank.comm, pipe.role());
    pipe.place({kBatch, 3, 32, 32});
    pipe.optimizer().clip_norm(0.01);
    run.set_up_checkpoints(data, pipe.layers(), pipe.optimizer());
    Loader loader(data.train, {.batch_size = kBatch});
    run_epochs(run, loader, [&](const Batch& batch) {
      return pipe.train_step(model_input(batch.inputs), batch.targets) / static_cast<double>(kBatch);
    });
  });
}

/// Trains an epoch and tests, with labels that are counted. Returns the accuracies in its metrics.
std::string accuracies_of_mesh(const std::string& out, const TrainTest& data, const MeshSizes& sizes) {
  launch({.ranks = sizes.ranks()}, [&](Rank& rank) {
    MeshPipe pipe(rank.comm, sizes, [](const LayerFactory&) { return small_classifier(); }, {.chunks = 2});
    Run run({.out = out, .epochs = 1, .batch_size = kBatch}, rank.comm, pipe.role());
    pipe.place({kBatch, 3, 32, 32});
    run.set_up_checkpoints(data, pipe.layers(), pipe.optimizer());
    Loader train(data.train, {.batch_size = kBatch});
    Loader test(data.test, {.batch_size = kBatch});
    for (Epoch& epoch : run.epochs()) {
      for (const Batch& batch : epoch.training_batches(train)) {
        EpochSums& sums = epoch.train_sums();
        sums.add_loss(pipe.train_step(model_input(batch.inputs), batch.targets, &sums.correct));
      }
      for (const Batch& batch : epoch.test_batches(test)) {
        pipe.evaluate(model_input(batch.inputs), batch.targets, &epoch.test_sums().correct);
      }
    }
  });
  const std::string metrics = read_bytes(out + "/metrics.jsonl");
  const auto begin = std::min(metrics.find("\"acc\""), metrics.size());
  return metrics.substr(begin, metrics.find("\"seconds\"") - begin);
}

/// A training of three epochs that stops after the first one, and goes on with `resumed_ranks`, ends with the bytes of
/// one that does not stop.
void expect_resumes(const Train& train, int ranks, int resumed_ranks) {
  const TemporaryFolder folder;
  const TrainTest data = generate({.train = 4 * kBatch, .test = 1});
  RunOptions options{.out = folder.file("untouched"), .epochs = 3, .batch_size = kBatch, .labels = 0};
  train(options, data, ranks);
  options.out = folder.file("stopped");
  options.epochs = 1;
  train(options, data, ranks);
  options.resume = options.out;
  options.epochs = 3;
  train(options, data, resumed_ranks);
  EXPECT_EQ(read_bytes(folder / "untouched/weights.safetensors"), read_bytes(folder / "stopped/weights.safetensors"));
  EXPECT_EQ(read_bytes(folder / "untouched/metrics.jsonl").find("acc"), std::string::npos) << "no labels are counted";
}

/// Makes a step every `batches` batches of an epoch of four. Is interrupted in batch `stop` of the first epoch.
void accumulate_batches(const RunOptions& options, const TrainTest& data, int batches, std::int64_t stop = -1) {
  Pipe pipe(small_classifier(), {.split = {2, 2}, .optimizer = adam()});
  Run run(options, Device{});
  pipe.place({kBatch, 3, 32, 32});
  run.set_up_checkpoints(data, pipe.model(), pipe.optimizer());
  Loader loader(data.train, {.batch_size = kBatch});
  run_epochs(run, loader, [&](const Batch& batch) {
    const double loss = pipe.backward(model_input(batch.inputs), batch.targets);
    if ((batch.index + 1) % batches == 0) {
      pipe.step();
      pipe.zero_grad();
    }
    if (batch.index == stop) {
      std::raise(SIGINT);
    }
    return loss;
  });
}

TEST(ResumedWrappers, PipeStopsBetweenTwoSteps) {
  const TemporaryFolder folder;
  const TrainTest data = generate({.train = 4 * kBatch, .test = 1});
  RunOptions options{.out = folder.file("untouched"), .epochs = 1, .batch_size = kBatch};
  accumulate_batches(options, data, 2);
  options.out = folder.file("stopped");
  EXPECT_THROW(accumulate_batches(options, data, 2, 0), Interrupted);  // after batch 1, where a step ends
  EXPECT_TRUE(std::filesystem::exists(folder / "stopped/checkpoints/epoch-1-step-2"));
  options.resume = options.out;
  accumulate_batches(options, data, 2);
  EXPECT_EQ(read_bytes(folder / "untouched/weights.safetensors"), read_bytes(folder / "stopped/weights.safetensors"));
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    std::signal(signal, SIG_DFL);
  }
}

TEST(ResumedWrappers, PipeSavesNothingInTheMiddleOfAStep) {
  const TemporaryFolder folder;
  const TrainTest data = generate({.train = 4 * kBatch, .test = 1});
  const RunOptions options{.out = folder.file("run"), .epochs = 1, .batch_size = kBatch};
  EXPECT_TRUE(fails_with<UsageError>({"got the gradients of 16 samples", "call step()", "zero_grad()"},
                                     [&] { accumulate_batches(options, data, 3); }));
}

TEST(ResumedWrappers, PipeBeginsAStepAnewAfterZeroGrad) {
  const Tensor x = random_tensor({kBatch, 3, 32, 32}, "images", DType::float32);
  Pipe pipe(small_classifier(), {.split = {2, 2}, .optimizer = adam()});
  const Tensor first = pipe.forward_for_loss(x);
  EXPECT_TRUE(fails_with<UsageError>({"16 samples"}, [&] { pipe.optimizer().state(); }));
  pipe.zero_grad();
  EXPECT_EQ(pipe.optimizer().state().back().first, "steps_done");
  EXPECT_TRUE(same_bytes(first, pipe.forward_for_loss(x))) << "the masks depend on what is saved";
}

TEST(ResumedWrappers, PipeGoesOnWithAnyNumberOfRanks) {
  expect_resumes(train_pipe, 2, 4);
  expect_resumes(train_pipe, 3, 1);
}
TEST(ResumedWrappers, DataParallelGoesOn) { expect_resumes(train_data_parallel, 2, 2); }
TEST(ResumedWrappers, MeshPipeGoesOnWithOtherStages) { expect_resumes(train_mesh, 1, 2); }
TEST(ResumedWrappers, MeshPipePrintsTheAccuraciesOfOneDevice) {
  const TemporaryFolder folder;
  const TrainTest data = generate({.train = 4 * kBatch, .test = 2 * kBatch});
  const std::string one = accuracies_of_mesh(folder.file("one"), data, {});
  EXPECT_NE(one.find("\"test_acc\":"), std::string::npos) << one;
  EXPECT_EQ(accuracies_of_mesh(folder.file("two"), data, {.pipeline = 2}), one);
}
TEST(ResumedWrappers, DistributedDataParallelGoesOn) { expect_resumes(train_distributed, 2, 2); }

}  // namespace
}  // namespace stagecoach::test
