// Remote calls: modules on workers train what one device trains, bit for bit. Ranks are threads, or the processes of
// mpirun.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/autograd/grad_mode.h"
#include "core/ops.h"
#include "datasets/shares.h"
#include "parallel/launch/launch_environment.h"
#include "parallel/pipeline/split.h"
#include "parallel/rpc/distributed_autograd.h"
#include "parallel/rpc/master.h"
#include "parallel/rpc/remote_sequential.h"
#include "tests/parallel/image_task.h"
#include "tests/parallel/worlds.h"
#include "tests/support/sanitized.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::ImageTask;
using test::same_bytes;
using test::unless_sanitized;

std::string stage_name(int stage) { return fmt::format("stage {}", stage); }

/// The stages of the task's model, and its optimizer.
RemoteTable table_of(const ImageTask& task, int stages) {
  RemoteTable table;
  table.add_class("optimizer", task.optimizer);
  for (int stage = 0; stage < stages; ++stage) {
    table.add_class(stage_name(stage), [task, stages, stage](Device device) {
      const auto model = task.make();
      const auto part = stages_of(*model, split_by_layers(model->size(), stages))[static_cast<std::size_t>(stage)];
      part->materialize(ImageTask::kSeed, device);
      return part;
    });
  }
  return table;
}

/// What a training leaves: parameters and buffers, and the output in evaluation.
struct TrainedModules {
  NamedTensors tensors;
  Tensor output;
};

TrainedModules on_one_device(const ImageTask& task, int microbatches) {
  const auto model = test::OneDevice(task, microbatches).model;
  model->train(false);
  const NoGrad no_grad;
  TrainedModules trained{model->named_parameters(), model->forward(task.images(0))};
  for (const auto& buffer : model->named_buffers()) {
    trained.tensors.push_back(buffer);
  }
  return trained;
}

/// Makes the stages on the workers, round-robin.
RemoteSequential make_stages(Master& master, int stages) {
  std::vector<RRef> modules;
  for (int stage = 0; stage < stages; ++stage) {
    modules.push_back(master.remote(1 + stage % master.workers(), stage_name(stage)));
  }
  return RemoteSequential(modules);
}

/// The master's program: trains the task by remote calls.
TrainedModules by_remote_calls(const ImageTask& task, int microbatches, Master& master, int stages) {
  const RemoteSequential model = make_stages(master, stages);
  DistributedOptimizer optimizer(master, "optimizer", model.named_parameters());
  for (int step = 0; step < task.steps; ++step) {
    DistributedContext context(master);
    std::vector<Future> futures;
    for (const Tensor& images : micro_batches(task.images(step), microbatches)) {
      futures.push_back(model.forward(images).fetch());
    }
    std::vector<Tensor> outputs;
    for (Future& future : futures) {
      outputs.push_back(future.wait());
    }
    const Tensor loss = cross_entropy(cat(outputs), ImageTask::labels(), Reduction::sum);
    context.backward(loss, Tensor::full({}, 1.0 / ImageTask::kImages));
    optimizer.step(context);
  }
  model.train(false);
  const Tensor output = model.forward(task.images(0)).to_here();
  NamedTensors tensors = to_here(model.named_parameters());
  const NamedTensors buffers = to_here(model.named_buffers());
  tensors.insert(tensors.end(), buffers.begin(), buffers.end());
  return {tensors, output};  // evaluation has not moved the buffers
}

/// The numbers of micro-batches.
std::vector<int> splits(int ranks) {
  const bool only_three = test::ranks_are_processes() || ranks > 3;
  return only_three ? std::vector{3} : unless_sanitized<std::vector<int>>({1, 3}, {3});
}

class Rpc : public ::testing::TestWithParam<ImageTask> {};
INSTANTIATE_TEST_SUITE_P(Models, Rpc, test::image_tasks(), test::name_of_task);

TEST_P(Rpc, TrainsWhatOneDeviceTrains) {
  std::map<int, TrainedModules> trained;  // by the number of micro-batches
  // Two stages on one worker, or one on each of two, three and four.
  for (const int ranks : unless_sanitized<std::vector<int>>({2, 3, 4, 5}, {2, 3})) {
    if (!test::has_ranks(ranks)) {
      continue;
    }
    const int stages = std::max(2, ranks - 1);
    for (const int microbatches : splits(ranks)) {
      SCOPED_TRACE(fmt::format("{} ranks, {} micro-batches", ranks, microbatches));
      if (!trained.contains(microbatches)) {
        trained[microbatches] = on_one_device(GetParam(), microbatches);
      }
      const TrainedModules& wanted = trained[microbatches];
      run_with_master(test::world_of(ranks), table_of(GetParam(), stages), [&](Master& master) {
        const TrainedModules got = by_remote_calls(GetParam(), microbatches, master, stages);
        test::expect_equal(wanted.tensors, got.tensors);
        EXPECT_TRUE(same_bytes(wanted.output, got.output));
      });
    }
  }
}

}  // namespace
}  // namespace stagecoach
