/// @file
/// Programs that train with the wrappers save their state and go on from it.

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
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
  Run run(options, pipe.role());
  pipe.place({kBatch, 3, 32, 32});
  run.set_up_checkpoints(data, pipe.model(), pipe.optimizer());
  Loader loader(data.train, {.batch_size = kBatch});
  run_epochs(run, loader,
             [&](const Batch& batch) { return pipe.train_step(model_input(batch.inputs), batch.targets); });
}

void train_data_parallel(const RunOptions& options, const TrainTest& data, int ranks) {
  DataParallel parallel(small_classifier, {.ranks = ranks, .optimizer = adam()});
  Run run(options, parallel.role());
  run.set_up_checkpoints(data, parallel.model(), parallel.optimizer());
  Loader loader(data.train, {.batch_size = kBatch});
  run_epochs(run, loader,
             [&](const Batch& batch) { return parallel.train_step(model_input(batch.inputs), batch.targets); });
}

/// Each rank adds up the gradients of `microbatches` parts of its share.
void accumulate_distributed(const RunOptions& options, const TrainTest& data, int ranks, int microbatches) {
  launch({.ranks = ranks}, [&](Rank& rank) {
    const auto model = small_classifier();
    Run run(options, rank.comm, replica_role(*model, microbatches));
    model->materialize(1, rank.device);
    DistributedDataParallel parallel(*model, rank.comm);
    const auto optimizer = adam()(model->named_parameters());
    run.set_up_checkpoints(data, *model, *optimizer);
    Loader loader(data.train, {.batch_size = kBatch, .shard = rank.index, .shards = ranks});
    run_epochs(run, loader, [&](const Batch& batch) {
      const std::int64_t first = share_of(batch.global_size, rank.index, ranks).first;
      double sum = 0;
      for (int i = 0; i < microbatches; ++i) {
        const Share part = share_of(batch.inputs.size(0), i, microbatches);
        const auto of_part = [&](const Tensor& all) { return all.narrow(part.first, part.count).to(rank.device); };
        const BatchScope scope(BatchPosition{optimizer->steps_done(), first + part.first});
        const Tensor logits = parallel.forward(of_part(model_input(batch.inputs)));
        const Tensor loss = cross_entropy(logits, of_part(batch.targets), Reduction::sum);
        i + 1 < microbatches ? parallel.accumulate(loss, batch.global_size)
                             : parallel.backward(loss, batch.global_size);
        sum += loss.item();
      }
      optimizer->step();
      optimizer->zero_grad();
      return sum / static_cast<double>(batch.inputs.size(0));
    });
  });
}

void train_distributed(const RunOptions& options, const TrainTest& data, int ranks) {
  accumulate_distributed(options, data, ranks, 1);
}

/// One rank with the parts of four.
void train_alone(const RunOptions& options, const TrainTest& data, int ranks) {
  accumulate_distributed(options, data, ranks, 4);
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

struct Resumed {
  bool same_bytes;
  std::string printed;
};
/// Trains three epochs, stops after the first one, and goes on with `resumed_train` and `resumed_ranks`. Returns
/// whether that ends with the bytes of a training that does not stop.
Resumed resume(const Train& train, int ranks, const Train& resumed_train, int resumed_ranks) {
  const TemporaryFolder folder;
  const TrainTest data = generate({.train = 4 * kBatch, .test = 1});
  RunOptions options{.out = folder.file("untouched"), .epochs = 3, .batch_size = kBatch, .labels = 0};
  train(options, data, ranks);
  options.out = folder.file("stopped");
  options.epochs = 1;
  train(options, data, ranks);
  EXPECT_EQ(read_bytes(folder / "untouched/metrics.jsonl").find("acc"), std::string::npos) << "no labels are counted";
  options.resume = options.out;
  options.epochs = 3;
  std::string printed;
  options.print = [&](const std::string& text) { printed += text; };
  resumed_train(options, data, resumed_ranks);
  return {read_bytes(folder / "untouched/weights.safetensors") == read_bytes(folder / "stopped/weights.safetensors"),
          printed};
}

void expect_resumes(const Train& train, int ranks, int resumed_ranks) {
  const Resumed resumed = resume(train, ranks, train, resumed_ranks);
  EXPECT_TRUE(resumed.same_bytes);
  EXPECT_EQ(resumed.printed.find("bytes"), std::string::npos) << "nothing to say: " << resumed.printed;
}

/// Other parts of a batch change the last bits, and the run says so.
void expect_says_that_bytes_change(const Train& train, int ranks, int resumed_ranks) {
  const Resumed resumed = resume(train, ranks, train, resumed_ranks);
  EXPECT_FALSE(resumed.same_bytes);
  EXPECT_NE(resumed.printed.find("so the weights end with other bytes"), std::string::npos) << resumed.printed;
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
TEST(ResumedWrappers, DistributedDataParallelGoesOnWithThePartsOnOneRank) {
  const Resumed resumed = resume(train_distributed, 4, train_alone, 1);
  EXPECT_TRUE(resumed.same_bytes);
  EXPECT_NE(resumed.printed.find("so the weights end with the same bytes"), std::string::npos) << resumed.printed;
}
TEST(ResumedWrappers, SayThatOtherPartsOfABatchChangeBytes) {
  expect_says_that_bytes_change(train_distributed, 4, 2);
  expect_says_that_bytes_change(train_data_parallel, 4, 2);
}

/// Trains three stages, one after the other: each rank waits for two thirds of the time.
void train_stages_of_pipe(const RunOptions& options, const TrainTest& data) {
  Pipe pipe(small_classifier(), {.chunks = 1, .ranks = 3, .split = {2, 1, 1}});
  Run run(options, pipe.role());
  pipe.place({kBatch, 3, 32, 32});
  run.set_up_checkpoints(data, pipe.model(), pipe.optimizer());
  Loader loader(data.train, {.batch_size = kBatch});
  run_epochs(run, loader,
             [&](const Batch& batch) { return pipe.train_step(model_input(batch.inputs), batch.targets); });
}

void train_stages_of_mesh(const RunOptions& options, const TrainTest& data) {
  launch({.ranks = 3}, [&](Rank& rank) {
    const auto make = [](const LayerFactory&) { return small_classifier(); };
    MeshPipe pipe(rank.comm, {.pipeline = 3}, make, {.chunks = 1, .split = {2, 1, 1}});
    Run run(options, rank.comm, pipe.role());
    pipe.place({kBatch, 3, 32, 32});
    run.set_up_checkpoints(data, pipe.layers(), pipe.optimizer());
    Loader loader(data.train, {.batch_size = kBatch});
    run_epochs(run, loader,
               [&](const Batch& batch) { return pipe.train_step(model_input(batch.inputs), batch.targets); });
  });
}

TEST(ResumedWrappers, ARunMeasuresTheRanksOfAPipe) {
  const TemporaryFolder folder;
  const TrainTest data = generate({.train = 4 * kBatch, .test = 1});
  const auto options_of = [&](const char* name) {
    return RunOptions{.out = folder.file(name), .epochs = 1, .batch_size = kBatch, .labels = 0};
  };
  train_stages_of_pipe(options_of("pipe"), data);
  train_stages_of_mesh(options_of("mesh"), data);
  const auto metrics = nlohmann::json::parse(read_bytes(folder / "pipe/metrics.jsonl"));
  EXPECT_EQ(metrics["links"], nlohmann::json::parse(read_bytes(folder / "mesh/metrics.jsonl"))["links"]);
  EXPECT_EQ(metrics["links"].size(), 4) << "0 to 1 to 2 and back";
  EXPECT_GT(metrics["idle"].get<double>(), 0.3);
  EXPECT_DOUBLE_EQ(metrics["ideal_idle"].get<double>(), 2.0 / 3);
  std::map<int, std::set<std::string>> categories;  // by track
  const auto trace = nlohmann::json::parse(read_bytes(folder / "pipe/trace.json"));
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "X") {
      categories[event["tid"].get<int>()].insert(event["cat"].get<std::string>());
    }
  }
  for (const int rank : {0, 1, 2}) {
    EXPECT_TRUE(categories[rank + 1].contains("action") && categories[rank + 1].contains("step")) << rank;
  }
}

}  // namespace
}  // namespace stagecoach::test
