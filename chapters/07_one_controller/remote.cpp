// The experiment of "Distributed pipeline parallelism using RPC" (PyTorch's tutorials): a model as remote stages on
// workers, driven by a master, timed for 1, 2, 4 and 8 micro-batches per batch.
#include "chapters/07_one_controller/remote.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>
#include <vector>

#include "chapters/common/console.h"
#include "chapters/common/micro_batches.h"
#include "chapters/common/open.h"
#include "chapters/common/plan.h"
#include "core/ops.h"
#include "datasets/device_loader.h"
#include "parallel/rpc/distributed_autograd.h"
#include "parallel/rpc/master.h"

namespace stagecoach {
namespace {

std::string stage_name(int stage) { return fmt::format("stage {}", stage); }

/// Returns what all ranks can make by name: the stages of the model, each with its initial weights, and the optimizer.
RemoteTable table_of(const TrainingSettings& training, const Dataset& data, const Split& split) {
  RemoteTable table;
  for (std::size_t stage = 0; stage < split.size(); ++stage) {
    table.modules[stage_name(static_cast<int>(stage))] = [&training, &data, split, stage](Device device) {
      const auto part = stages_of(*make_model_of(training, data), split)[stage];
      part->materialize(training.seed, device);
      return part;
    };
  }
  table.optimizers["optimizer"] = [&training](NamedTensors parameters) {
    return make_optimizer(training, std::move(parameters));
  };
  return table;
}

/// The model as the master sees it: modules that it can call.
struct RemoteModel {
  explicit RemoteModel(Master& master) {
    for (int worker = 1; worker <= master.workers(); ++worker) {
      stages.push_back(master.remote(worker, stage_name(worker - 1)));
      for (const RRef& parameter : stages.back().parameters()) {
        parameters.push_back(parameter);
      }
    }
  }
  /// Calls all stages for the images and returns at once. The activations go from worker to worker.
  Future forward(const Tensor& images) const {
    RRef x = stages[0].forward(normalize(images));
    for (std::size_t stage = 1; stage < stages.size(); ++stage) {
      x = stages[stage].forward(x);
    }
    return x.fetch();
  }
  std::vector<RemoteModule> stages;
  std::vector<RRef> parameters;
};

/// One training step. Returns the sum of the losses. While the second worker works on a micro-batch, the first one
/// already has the next: the calls of all micro-batches are made before any output is waited for.
double train_step(Master& master, const RemoteModel& model, DistributedOptimizer& optimizer, const Batch& batch,
                  int splits) {
  DistributedContext context(master);
  std::vector<Future> futures;
  for (const Tensor& images : micro_batches(batch.images, splits)) {
    futures.push_back(model.forward(images));
  }
  std::vector<Tensor> outputs;
  for (Future& future : futures) {
    outputs.push_back(future.wait());
  }
  const Tensor loss = cross_entropy(cat(outputs), batch.labels, Reduction::sum);  // of the whole batch, on the master
  context.backward(loss, Tensor::full({}, 1.0 / static_cast<double>(batch.images.size(0))));
  optimizer.step(context);
  return loss.item();
}

/// Of the last epoch, as in the first one memory is touched for the first time.
struct Measured {
  double seconds = 0;
  double loss = 0;  // mean
};

Measured train_with(Master& master, const Settings& settings, const Dataset& data, int splits) {
  const RemoteModel model(master);
  DistributedOptimizer optimizer(master, "optimizer", model.parameters);
  DeviceLoader loader(make_loader(settings.training, settings.world, data, LoaderFor::training), Device{});
  Measured measured;
  for (std::int64_t epoch = 0; epoch < settings.training.epochs; ++epoch) {
    const auto start = std::chrono::steady_clock::now();
    measured.loss = 0;
    loader.start_epoch(epoch);
    while (const auto batch = loader.next()) {
      measured.loss += train_step(master, model, optimizer, *batch, splits);
    }
    measured.loss /= static_cast<double>(data.size());
    measured.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  return measured;
}

}  // namespace

void train_remotely(const Settings& settings) {
  const TrainTest data = open_data(settings);
  const World world = open_world(settings.world);
  const auto model = make_model_of(settings.training, data.train);
  std::vector<LayerProfile> profile;
  if (settings.pipeline.split.empty() && settings.pipeline.balance == Balance::time) {
    profile = measure_layers(settings.training, world, data.train, *model);
  }
  const Split split = split_of(settings.pipeline, *model, world.ranks - 1, profile);
  const RemoteTable table = table_of(settings.training, data.train, split);
  double first = 0;  // seconds with the first number of splits
  for (const int splits : *settings.pipeline.splits) {
    run_with_master(world, table, [&](Master& master) {
      if (first == 0) {
        print_text(
            fmt::format("{} as {} remote stage(s) of {} layers, batches of {}\n  {:>6} {:>10} {:>10} {:>8} {:>8}\n",
                        settings.training.model, master.workers(), fmt::join(split, ","), settings.training.batch_size,
                        "splits", "seconds", "img/s", "speed-up", "loss"));
      }
      const Measured measured = train_with(master, settings, data.train, splits);
      first = first > 0 ? first : measured.seconds;
      const double images = static_cast<double>(data.train.size());
      print_line(fmt::format("  {:>6} {:>10.2f} {:>10.1f} {:>8.2f} {:>8.6f}", splits, measured.seconds,
                             images / measured.seconds, first / measured.seconds, measured.loss));
    });
  }
}

}  // namespace stagecoach
