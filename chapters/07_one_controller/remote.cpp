// The experiment of "Distributed pipeline parallelism using RPC" (PyTorch's tutorials): a model as remote stages on
// workers, driven by a master, timed for 1, 2, 4 and 8 micro-batches per batch.
#include "chapters/07_one_controller/remote.h"

#include <fmt/format.h>

#include <optional>
#include <utility>
#include <vector>

#include "chapters/07_one_controller/clock_ticks.h"
#include "chapters/07_one_controller/placed_model.h"
#include "chapters/common/initial_weights.h"
#include "chapters/common/open.h"
#include "chapters/common/plan.h"
#include "chapters/common/run.h"
#include "chapters/common/sample.h"
#include "chapters/compare/report.h"
#include "core/autograd/grad_mode.h"
#include "core/base/phrases.h"
#include "core/base/printable.h"
#include "core/ops.h"
#include "datasets/device_loader.h"
#include "datasets/shares.h"
#include "nn/batch_position.h"
#include "parallel/rpc/distributed_autograd.h"
#include "parallel/rpc/master.h"
#include "parallel/rpc/remote_sequential.h"
#include "parallel/training/console.h"
#include "parallel/training/epoch_log.h"
#include "parallel/training/epoch_meter.h"
#include "parallel/training/run_folder.h"
#include "parallel/training/summary.h"

namespace stagecoach {
namespace {

std::string stage_name(int stage) { return fmt::format("stage {}", stage); }

/// Returns what all ranks can make by name: the stages of the model, each with its initial weights, and the optimizer.
RemoteTable table_of(const TrainingSettings& training, const Dataset& data, const Split& split) {
  RemoteTable table;
  for (std::size_t stage = 0; stage < split.size(); ++stage) {
    table.add_class(stage_name(static_cast<int>(stage)), [&training, &data, split, stage](Device device) {
      const auto part = stages_of(*make_model_of(training, data), split)[stage];
      part->materialize(training.seed, device);
      load_initial_weights(training, data, *part);
      return part;
    });
  }
  table.add_class("optimizer",
                  [&training](NamedTensors parameters) { return make_optimizer(training, std::move(parameters)); });
  return table;
}

/// Returns the stages of the model on the workers, one on each.
RemoteSequential make_remote_model(Master& master) {
  std::vector<RRef> stages;
  for (int worker = 1; worker <= master.workers(); ++worker) {
    stages.push_back(master.remote(worker, stage_name(worker - 1)));
  }
  return RemoteSequential(stages);
}

/// One training step. `position` is that of the batch, for layers that draw random numbers (--dropout). While the
/// second worker works on a micro-batch, the first one already has the next: the calls of all micro-batches are made
/// before any output is waited for.
void train_step(Master& master, const RemoteSequential& model, DistributedOptimizer& optimizer, const Batch& batch,
                std::optional<BatchPosition> position, int splits, EpochSums& sums) {
  DistributedContext context(master);
  std::vector<Future> futures;
  for (const Tensor& images : micro_batches(batch.inputs, splits)) {
    const BatchScope scope(position);  // which goes to the workers with the calls
    futures.push_back(model.forward(model_input(images)).fetch());
    if (position) {
      position->first += images.size(0);
    }
  }
  std::vector<Tensor> outputs;
  for (Future& future : futures) {
    outputs.push_back(future.wait());
  }
  const Tensor logits = cat(outputs);
  const Tensor loss = cross_entropy(logits, batch.targets, Reduction::sum);  // of the whole batch, on the master
  context.backward(loss,
                   Tensor::full({}, 1.0 / static_cast<double>(batch.inputs.size(0)), DType::float32, logits.device()));
  optimizer.step(context);
  sums.add(loss, logits, batch.targets);
}

/// Returns the share of the images that the model classifies correctly, with forwards only.
double accuracy(const RemoteSequential& model, DeviceLoader& loader, std::int64_t images, Device host) {
  const NoGrad no_grad;
  model.train(false);  // batch norm uses its running statistics, which the workers have
  Tensor correct = Tensor::zeros({}, DType::int32, host);
  loader.start_epoch(1);
  while (const auto batch = loader.next()) {
    count_correct(model.forward(model_input(batch->inputs)).to_here(), batch->targets, correct);
  }
  model.train(true);
  return correct.item() / static_cast<double>(images);
}

/// Completes `result`, which has the steps of an epoch, with the five numbers for --summary: from what the ranks have
/// done since `before`. The time is the master's, which ends when all workers have updated their weights. The master
/// only calls, so the idle share is that of its workers.
void measure(Master& master, const std::vector<rpc::Report>& before, int splits, EpochResult& result) {
  const std::vector<rpc::Report> now = master.reports();
  result.seconds = now[0].time - before[0].time;
  double waited = 0;
  for (std::size_t rank = 0; rank < now.size(); ++rank) {
    waited += rank == 0 ? 0 : now[rank].waited - before[rank].waited;
    result.peak_bytes.push_back(static_cast<std::int64_t>(now[rank].peak_bytes));
    for (std::size_t to = 0; to < now.size(); ++to) {
      const double bytes = (now[rank].bytes_sent[to] - before[rank].bytes_sent[to]) / static_cast<double>(result.steps);
      if (bytes > 0) {
        result.links.push_back({static_cast<int>(rank), static_cast<int>(to), bytes});
      }
    }
  }
  result.idle = waited / (result.seconds * master.workers());
  result.prediction.ideal_idle = ideal_idle_share(master.workers(), splits);
}

/// Trains with `splits` micro-batches per batch, and writes to --out after each epoch. Returns the last epoch, as in
/// the first one memory is touched for the first time.
EpochResult train_with(Master& master, const Settings& settings, const TrainTest& data, int splits) {
  RunFolder folder(run_options(settings), 0);
  folder.lock();
  folder.begin(Progress{});
  const RemoteSequential model = make_remote_model(master);
  DistributedOptimizer optimizer(master, "optimizer", model.named_parameters());
  const Device host = device_of(open_world(settings.world), 0);  // the master's
  DeviceLoader loader = make_host_loader(settings, data.train, LoaderFor::training, host);
  DeviceLoader test_loader = make_host_loader(settings, data.test, LoaderFor::testing, host);
  EpochResult result;
  for (std::int64_t epoch = 1; epoch <= settings.training.epochs; ++epoch) {
    std::vector<rpc::Report> before = master.reports();
    before[0] = master.report(0);  // the time begins when all have reported
    EpochSums sums(host);
    result = EpochResult{};
    result.epoch = epoch;
    result.clock = to_string(settings.world.clock);
    loader.start_epoch(epoch);
    for (auto batch = loader.next(); batch; batch = loader.next()) {
      const BatchPosition first{(epoch - 1) * loader.batch_count() + result.steps};
      train_step(master, model, optimizer, *batch, settings.training.dropout > 0 ? std::optional(first) : std::nullopt,
                 splits, sums);
      ++result.steps;
    }
    measure(master, before, splits, result);
    const auto images = static_cast<double>(data.train.size());
    const auto labels = static_cast<double>(run_options(settings).labels);
    result.loss = sums.loss.item() / images;
    result.accuracy = sums.correct.item() / (images * labels);
    result.images_per_second = images / result.seconds;
    result.test_accuracy = accuracy(model, test_loader, data.test.size(), host) / labels;
    if (folder.writes()) {
      folder.save_results(
          {.parameters = to_here(model.named_parameters()), .buffers = to_here(model.named_buffers()), .optimizer = {}},
          result);
    }
  }
  if (splits == settings.pipeline.splits->back()) {
    model.train(false);
    print_sample(settings, [&](const Tensor& tokens) { return model.forward(tokens.to(host)).to_here(); });
  }
  return result;
}

}  // namespace

void train_remotely(const Settings& settings) {
  const TrainTest data = open_data(settings);
  const PlannedModel planned = planned_model(settings, data.train);
  const int workers = planned.world.ranks - 1;
  const Split split =
      split_of(settings.pipeline, *planned.model, Schedule{round_robin_placement(workers, workers)}, planned.profile);
  const RemoteTable table = table_of(settings.training, data.train, split);
  double first = 0;  // seconds with the first number of splits
  for (const int splits : *settings.pipeline.splits) {
    run_with_master(planned.world, table, [&](Master& master) {
      if (first == 0) {
        print_text(
            fmt::format("{} as {} of {} layers, batches of {}, {} clock\n"
                        "  {:>6} {:>10} {:>10} {:>8} {:>8} {:>8}\n",
                        settings.training.model, counted(master.workers(), "remote stage"), fmt::join(split, ","),
                        settings.training.batch_size, to_string(settings.world.clock), "splits", "seconds", "img/s",
                        "speed-up", "test acc", "loss"));
      }
      const EpochResult result = train_with(master, settings, data, splits);
      first = first > 0 ? first : result.seconds;
      print_line(fmt::format("  {:>6} {:>10.2f} {:>10.1f} {:>8.2f} {:>8.4f} {:>8.6f}", splits, result.seconds,
                             result.images_per_second, first / result.seconds, *result.test_accuracy, result.loss));
      if (!settings.run.out.empty()) {
        print_line("Results: " + printable(settings.run.out) +
                   " (config.json, metrics.jsonl and weights.safetensors; --form remote writes no trace and no "
                   "checkpoints)");
      }
      if (settings.run.report) {
        write_report(settings.run.out);
      }
      if (settings.run.summary && splits == settings.pipeline.splits->back()) {
        print_text(summary({result}));
      }
    });
  }
}

}  // namespace stagecoach
