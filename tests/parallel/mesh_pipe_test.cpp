// A MeshPipe trains what one device trains, bit for bit, and its runs go on with other stages.
#include "parallel/wrappers/mesh_pipe.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
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
  const auto optimizer = task.optimizer(parameters);
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

void expect_trains_as_one_device(const MeshSizes& sizes, const std::string& schedule = "1f1b") {
  const OwnTask task;
  const auto oracle = sizes.tensor > 1 ? cut_model(SlicedLayers(sizes.tensor)) : cut_model(LayerFactory());
  const NamedTensors wanted = on_one_device(task, oracle, sizes.data);
  launch({.ranks = sizes.ranks()}, [&](Rank& rank) {
    SCOPED_TRACE(fmt::format("rank {} of dp={},pp={},tp={}", rank.index, sizes.data, sizes.pipeline, sizes.tensor));
    MeshPipe pipe(rank.comm, sizes, cut_model,
                  {.chunks = task.chunks,
                   .schedule = schedule,
                   .loss = task.loss,
                   .optimizer = task.optimizer,
                   .seed = kTaskSeed});
    for (int step = 0; step < kTaskSteps; ++step) {
      pipe.train_step(task.x, task.target);
    }
    const RankRole role = pipe.role();
    const NamedSlices slices = pipe.layers().named_slices();
    for (const auto& [name, mine] : pipe.layers().named_parameters()) {
      const auto same_name = [&, &called = name](const auto& named) { return named.first == called; };
      const auto whole = std::find_if(wanted.begin(), wanted.end(), same_name);
      ASSERT_NE(whole, wanted.end()) << name;
      expect_equal(cut_slices({*whole}, slices), {{name, mine}});
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
  EXPECT_TRUE(fails_with<UsageError>({"no tied weights", "use Pipe"}, [&] {
    on_mesh({.pipeline = 2}, {.tied = {{"up1.weight", "up2.weight"}}}, train);
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
