// A MeshPipe trains what one device trains, bit for bit, and its runs go on with other stages.
#include "parallel/wrappers/mesh_pipe.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/autograd/backward.h"
#include "core/ops.h"
#include "datasets/shares.h"
#include "parallel/launch/launch.h"
#include "parallel/pipeline/gather.h"
#include "parallel/tensor_parallel/join_slices.h"
#include "parallel/tensor_parallel/sliced_layers.h"
#include "parallel/training/sums_over_ranks.h"
#include "tests/parallel/own_task.h"
#include "tests/support/errors.h"

namespace stagecoach {
namespace {

using test::expect_equal;
using test::fails_with;
using test::kTaskSeed;
using test::kTaskSteps;
using test::OwnTask;

/// Pairs of layers that can be cut, for points [N, 4], with a skip over the stages.
std::shared_ptr<Sequential> cut_model(const LayerFactory& layers) {
  auto model = std::make_shared<Sequential>();
  model->add("keep", std::make_shared<Stash>("input"));
  model->add("up1", layers.linear(4, 8, Cut::outputs)).add("gelu", std::make_shared<GELU>());
  model->add("down1", layers.linear(8, 4, Cut::inputs)).add("sum", std::make_shared<AddStashed>("input"));
  model->add("dropout", std::make_shared<Dropout>(0.5, kTaskSeed, "dropout"));
  model->add("up2", layers.linear(4, 8, Cut::outputs)).add("down2", layers.linear(8, 3, Cut::inputs));
  return model;
}

/// Returns the weights that one device trains, which adds up the gradients of the shares of `replicas`.
NamedTensors on_one_device(const OwnTask& task, const std::shared_ptr<Sequential>& model, int replicas) {
  model->materialize(kTaskSeed);
  const NamedTensors parameters = model->named_parameters();
  const TiedWeights tied(parameters, task.tied);
  const auto optimizer = task.optimizer(tied.without_copies(parameters));
  tie(*optimizer, tied);
  if (task.max_norm > 0) {
    optimizer->clip_norm(task.max_norm);
  }
  for (int step = 0; step < kTaskSteps; ++step) {
    std::vector<Tensor> sums(parameters.size());
    for (int replica = 0; replica < replicas; ++replica) {
      const Share share = share_of(task.x.size(0), replica, replicas);
      const auto inputs = micro_batches(task.x.narrow(share.first, share.count), task.chunks);
      const auto targets = micro_batches(task.target.narrow(share.first, share.count), task.chunks);
      std::int64_t first = share.first;
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        const BatchScope scope(BatchPosition{step, first});
        const NamedValues values;
        const std::int64_t samples = inputs[i].size(0);
        backward(task.loss(model->forward(inputs[i]), targets[i]),
                 Tensor::full({}, task.loss.weight(samples) / static_cast<double>(task.x.size(0))));
        first += samples;
      }
      for (std::size_t p = 0; p < sums.size(); ++p) {
        Tensor parameter = parameters[p].second;
        sums[p] = sums[p].defined() ? add(sums[p], parameter.grad()) : parameter.grad().clone();
        parameter.zero_grad();
      }
    }
    for (std::size_t p = 0; p < sums.size(); ++p) {
      Tensor(parameters[p].second).set_grad(sums[p].detach());
    }
    optimizer->step();
    optimizer->zero_grad();
  }
  return parameters;
}

/// Returns the model of one device, which computes cut layers slice by slice.
std::shared_ptr<Sequential> model_of_one_device(const MeshSizes& sizes) {
  return sizes.tensor > 1 ? cut_model(SlicedLayers(sizes.tensor)) : cut_model(LayerFactory());
}

void expect_trains_as_one_device(const MeshSizes& sizes, const std::string& schedule = "1f1b",
                                 const OwnTask& task = {}) {
  const auto oracle = model_of_one_device(sizes);
  const NamedTensors wanted = on_one_device(task, oracle, sizes.data);
  launch({.ranks = sizes.ranks()}, [&](Rank& rank) {
    SCOPED_TRACE(fmt::format("rank {} of dp={},pp={},tp={}", rank.index, sizes.data, sizes.pipeline, sizes.tensor));
    MeshPipe pipe(rank.comm, sizes, cut_model,
                  {.chunks = task.chunks,
                   .schedule = schedule,
                   .loss = task.loss,
                   .optimizer = task.optimizer,
                   .tied = task.tied,
                   .seed = kTaskSeed});
    if (task.max_norm > 0) {
      pipe.place(task.x.shape());
      pipe.optimizer().clip_norm(task.max_norm);
      pipe.optimizer().sum_squares_with(sums_over_ranks(rank.comm, pipe.role(), pipe.layers(), pipe.optimizer()));
    }
    for (int step = 0; step < kTaskSteps; ++step) {
      pipe.train_step(task.x, task.target);
    }
    const RankRole role = pipe.role();
    const NamedSlices slices = pipe.layers().named_slices();
    for (const auto& [name, mine] : pipe.layers().named_parameters()) {
      expect_equal(cut_slices({{name, find_tensor(wanted, name)}}, slices), {{name, mine}});
    }
    const double before = pipe.evaluate(task.x, task.target);
    EXPECT_EQ(before, pipe.evaluate(task.x, task.target)) << "nothing is dropped";
    EXPECT_EQ(before > 0, rank.index % sizes.tensor == 0 && role.layers.back().second == *role.replica_of);
  });
}

TEST(MeshPipe, TrainsAsOneDevice) {
  expect_trains_as_one_device({});
  expect_trains_as_one_device({.pipeline = 3});
  expect_trains_as_one_device({.data = 2, .pipeline = 2});
  expect_trains_as_one_device({.data = 2, .pipeline = 3}, "interleaved");
  expect_trains_as_one_device({.tensor = 2});
  expect_trains_as_one_device({.data = 2, .pipeline = 2, .tensor = 2});
}

TEST(MeshPipe, ClipsTheNormOfOneDevice) {
  OwnTask task;
  task.max_norm = 0.05;
  task.optimizer = sgd({.learning_rate = 0.5});
  OwnTask unclipped = task;
  unclipped.max_norm = 0;
  const auto trained = [](const OwnTask& of) { return on_one_device(of, model_of_one_device({}), 1)[0].second; };
  ASSERT_FALSE(test::same_bytes(trained(task), trained(unclipped))) << "nothing is clipped";
  expect_trains_as_one_device({.pipeline = 3}, "1f1b", task);
  expect_trains_as_one_device({.data = 2, .pipeline = 3}, "interleaved", task);
  expect_trains_as_one_device({.data = 2, .pipeline = 2, .tensor = 2}, "1f1b", task);
}

// Pairs on one rank and on two, whole and cut; a matrix with a copy on its own rank and one on another.
TEST(MeshPipe, TiesWeightsWhereverTheyAre) {
  OwnTask task;
  task.max_norm = 0.5;
  task.tied = {{"up1.weight", "up2.weight"}, {"up1.bias", "up2.bias"}};
  expect_trains_as_one_device({}, "1f1b", task);
  expect_trains_as_one_device({.data = 2}, "1f1b", task);
  expect_trains_as_one_device({.pipeline = 2}, "zbv", task);
  expect_trains_as_one_device({.data = 2, .pipeline = 3}, "1f1b", task);
  expect_trains_as_one_device({.data = 2, .pipeline = 2, .tensor = 2}, "1f1b", task);
}

// Labels are counted on one rank each; the ranks' counts together are those of one device.
TEST(MeshPipe, CountsWhatOneDeviceCounts) {
  const OwnTask task;
  const Tensor labels = test::random_labels(7, 3);
  const MeshSizes sizes{.data = 2, .pipeline = 2, .tensor = 2};
  const auto oracle = model_of_one_device(sizes);
  oracle->materialize(kTaskSeed);
  const auto counted = [&](bool trains) {
    oracle->train(trains);
    const BatchScope scope(BatchPosition{0, 0});
    const NamedValues values;
    Tensor correct = Tensor::zeros({}, DType::int32);
    count_correct(oracle->forward(task.x), labels, correct);
    return correct.item();
  };
  const std::vector<double> expected{counted(true), counted(false)};
  launch({.ranks = sizes.ranks()}, [&](Rank& rank) {
    MeshPipe pipe(rank.comm, sizes, cut_model,
                  {.chunks = task.chunks, .optimizer = sgd({.learning_rate = 0}), .seed = kTaskSeed});
    Tensor trained = Tensor::zeros({}, DType::int32, rank.device);
    Tensor tested = Tensor::zeros({}, DType::int32, rank.device);
    pipe.train_step(task.x, labels, &trained);
    pipe.evaluate(task.x, labels, &tested);
    const std::vector<double> sums = rank.comm.sum_numbers({trained.item(), tested.item()});
    EXPECT_EQ(sums, expected);
  });
}

TEST(MeshPipe, SaysWhatIsWrong) {
  const OwnTask task;
  const auto on_mesh = [&](const MeshSizes& sizes, const PipeSettings& settings,
                           const std::function<void(MeshPipe & pipe)>& use) {
    launch({.ranks = 2}, [&](Rank& rank) {
      MeshPipe pipe(rank.comm, sizes, cut_model, settings);
      use(pipe);
    });
  };
  const auto train = [&](MeshPipe& pipe) { pipe.train_step(task.x, task.target); };
  const PipeSettings settings{.loss = task.loss};
  EXPECT_TRUE(fails_with<UsageError>({"mesh", "4", "2"}, [&] { on_mesh({.data = 4}, settings, train); }));
  EXPECT_TRUE(fails_with<UsageError>({"2, got 3", "leave `ranks` out"},
                                     [&] { on_mesh({.pipeline = 2}, {.ranks = 3}, train); }));
  const auto tie = [&](const MeshSizes& sizes, const TiedWeights::Names& names) {
    return [&, sizes, names] { on_mesh(sizes, {.tied = names}, train); };
  };
  EXPECT_TRUE(
      fails_with<UsageError>({"the name of a parameter, got 'up'"}, tie({.pipeline = 2}, {{"up", "up2.weight"}})));
  EXPECT_TRUE(fails_with<UsageError>({"two parameters of one shape", "[8, 4]", "[4, 8]"},  // [4, 4] on each rank
                                     tie({.tensor = 2}, {{"up1.weight", "down1.weight"}})));
  EXPECT_TRUE(fails_with<UsageError>(
      {"in another pair already"}, tie({.pipeline = 2}, {{"up1.weight", "up2.weight"}, {"up2.weight", "up1.weight"}})));
  Tensor count = Tensor::zeros({}, DType::int32);
  EXPECT_TRUE(fails_with<UsageError>({"labels int32 [N, …]", "float32[7, 3]", "leave the count out"}, [&] {
    on_mesh({.pipeline = 2}, settings, [&](MeshPipe& pipe) { pipe.train_step(task.x, task.target, &count); });
  }));
  EXPECT_TRUE(fails_with<UsageError>({"expected a count int32 []", "undefined"}, [&] {
    on_mesh({.pipeline = 2}, {}, [&](MeshPipe& pipe) {
      Tensor none;
      pipe.evaluate(task.x, test::random_labels(7, 3), &none);
    });
  }));
  EXPECT_TRUE(fails_with<UsageError>({"one sample for each of 2 replicas, got 1"}, [&] {
    on_mesh({.data = 2}, settings,
            [&](MeshPipe& pipe) { pipe.train_step(task.x.narrow(0, 1), task.target.narrow(0, 1)); });
  }));
  EXPECT_TRUE(fails_with<UsageError>(
      {"call place(shape) first"}, [&] { on_mesh({.data = 2}, settings, [](MeshPipe& pipe) { pipe.optimizer(); }); }));
  EXPECT_TRUE(fails_with<Error>({"layer 'up1'", "[1, 5]"}, [&] {
    on_mesh({.pipeline = 2}, settings, [](MeshPipe& pipe) { pipe.place({7, 5}); });
  }));
  EXPECT_TRUE(fails_with<UsageError>({"to clip their norm", "clip_norm before Run::set_up_checkpoints"}, [&] {
    on_mesh({.pipeline = 2}, settings, [&](MeshPipe& pipe) {
      pipe.place(task.x.shape());
      pipe.optimizer().clip_norm(1);
      train(pipe);
    });
  }));
}

}  // namespace
}  // namespace stagecoach
