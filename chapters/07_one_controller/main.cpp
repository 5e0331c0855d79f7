/// @file
/// Chapter 7: one controller. A single program places the layers of a model on several devices.
///
/// There are no ranks here, no messages and no schedule table. The program is written as for one device, except that
/// each layer has a device, and that an activation moves to the device of the layer that it enters: `x.to(device)`.
/// Gradients move back the same way, so one backward runs through all devices.
///
/// The devices are asynchronous, as GPUs are: an operation only appends a call to its device's queue. So the program
/// runs ahead of the devices. If the forward of one micro-batch does not need that of another, the devices work on both
/// at the same time: a pipeline, from nothing but the order in which calls were appended (--form pipelined).

#include <fmt/format.h>

#include <optional>
#include <vector>

#include "chapters/07_one_controller/clock_ticks.h"
#include "chapters/07_one_controller/explain.h"
#include "chapters/07_one_controller/placed_model.h"
#include "chapters/07_one_controller/remote.h"
#include "chapters/07_one_controller/step_timeline.h"
#include "chapters/07_one_controller/toy.h"
#include "chapters/common/console.h"
#include "chapters/common/open.h"
#include "chapters/common/program.h"
#include "chapters/common/run.h"
#include "core/asynchronous.h"
#include "core/autograd/backward.h"
#include "core/ops.h"
#include "datasets/device_loader.h"
#include "datasets/shares.h"

namespace stagecoach {
namespace {

/// The naive forward: the whole batch, through one device after another. While one works, the others have nothing to
/// do, since each needs the output of the one before it.
Tensor naive_forward(const PlacedModel& model, const Tensor& images) {
  Tensor x = images;
  for (int stage = 0; stage < model.size(); ++stage) {
    const Span span("forward", "action", [&] { return fmt::format("{}F0", stage); });  // for trace.json
    x = model.forward(stage, x);                                                       // moves x to the stage's device
  }
  return x;
}

/// The pipelined forward: at each clock tick every device is given one micro-batch, the deepest stage first. Stage s
/// works on micro-batch i while stage s + 1 works on micro-batch i - 1. Returns the outputs of the whole batch.
Tensor pipelined_forward(const PlacedModel& model, const Tensor& images, std::int64_t microbatch_count) {
  std::vector<Tensor> x = micro_batches(images, microbatch_count);  // then what the last stage so far has returned
  const auto m = static_cast<int>(x.size());
  for (int tick = 0; tick < tick_count(model.size(), m); ++tick) {
    for (const auto [stage, i] : forwards_of_tick(tick, model.size(), m)) {
      const Span span("forward", "action", [stage = stage, i = i] { return fmt::format("{}F{}", stage, i); });
      Tensor& of_microbatch = x[static_cast<std::size_t>(i)];
      of_microbatch = model.forward(stage, of_microbatch);
    }
  }
  return cat(x);
}

/// One training step on a batch in the host's memory: images [N, 3, H, W] as bytes, labels [N].
void train_step(const Settings& settings, const PlacedModel& model, const Batch& batch, Optimizer& optimizer,
                EpochSums& sums) {
  const Tensor logits = settings.pipeline.form == ControllerForm::naive
                            ? naive_forward(model, batch.images)
                            : pipelined_forward(model, batch.images, settings.training.microbatches);

  // The labels go to the device of the logits; a loss of tensors on two devices is refused.
  const Tensor labels = batch.labels.to(model.devices.back());
  const Tensor loss = cross_entropy(logits, labels, Reduction::sum);  // [], of the whole batch

  // One backward for all devices. It runs the recorded operations in the reverse order, each on its own device, so it
  // is a pipeline too: the last micro-batch first, and the last device ahead of the others.
  {
    const Span span("backward", "action");
    const double share = 1.0 / static_cast<double>(batch.images.size(0));
    backward(loss, Tensor::full({}, share, loss.dtype(), loss.device()));
  }
  sums.add(loss, logits, labels);  // on the last device

  const Span span("optimizer", "update");
  optimizer.step();  // each parameter on its own device
  optimizer.zero_grad();
}

/// Counts the test images that the model classifies correctly, with forwards only.
void evaluate(const PlacedModel& model, Epoch& epoch, DeviceLoader& loader) {
  const NoGrad no_grad;  // nothing is kept for a backward
  model.whole->train(false);
  for (const Batch& batch : epoch.test_batches(loader)) {
    const Tensor labels = batch.labels.to(model.devices.back());
    count_correct(naive_forward(model, batch.images), labels, epoch.test_sums().correct);
  }
  model.whole->train(true);
}

/// Prints who did what when in a step, as it was measured (--explain --profile).
void show_timeline(const Settings& settings, PlacedModel& model, const Dataset& data) {
  place(model, settings.training.seed);
  const auto optimizer = make_optimizer(settings.training, model.whole->named_parameters());
  Loader loader = make_loader(settings.training, settings.world, data, LoaderFor::training);
  loader.start_epoch(1);
  const auto batch = loader.next();
  EpochSums sums(model.devices.back());
  print_text(step_timeline(model, [&] { train_step(settings, model, *batch, *optimizer, sums); }));
}

/// Makes the run's CPU devices asynchronous, unless --synchronous is given. (GPUs are asynchronous anyway.)
void make_asynchronous(const Settings& settings, const std::vector<Device>& devices,
                       std::optional<AsynchronousDevices>& asynchronous) {
  if (!settings.pipeline.synchronous && devices.front().type == DeviceType::cpu) {
    const bool with_computations = settings.pipeline.copy_stream == CopyStream::compute;
    asynchronous.emplace(devices, with_computations ? Stream::kCompute : Stream::kCopies);
  }
}

/// Trains with --form naive or pipelined: one program, which holds the whole model.
void train_on_devices(const Settings& settings) {
  const std::vector<Device> devices = open_devices(settings.world);  // one per --ranks
  std::optional<AsynchronousDevices> asynchronous;
  if (settings.training.model == "toy") {
    make_asynchronous(settings, devices, asynchronous);
    return show_toy(settings, devices);  // one step of a model that is small enough to print
  }
  const TrainTest data = open_data(settings);
  PlacedModel model = split_over_devices(settings, data.train, devices);
  make_asynchronous(settings, devices, asynchronous);
  if (settings.run.explain) {
    explain(settings, model);  // prints the devices of the layers and the clock ticks, and does not train
    return settings.run.profile ? show_timeline(settings, model, data.train) : void();
  }

  Run run(settings, devices);  // prints, measures and saves; losses are summed on the last device
  place(model, settings.training.seed);
  print_text(layer_table(
      model, {settings.training.batch_size, 3, settings.training.image_size, settings.training.image_size}));
  const auto optimizer = make_optimizer(settings.training, model.whole->named_parameters());
  run.set_up_checkpoints(data, *model.whole, *optimizer);  // --resume: loads both; epochs() saves both to --out
  const Device host;                                       // where the loaders put their batches
  DeviceLoader train_loader(make_loader(settings.training, settings.world, data.train, LoaderFor::training), host);
  DeviceLoader test_loader(make_loader(settings.training, settings.world, data.test, LoaderFor::testing), host);

  if (asynchronous) {
    const auto microbatches = static_cast<int>(settings.training.microbatches);  // 1 in the naive form
    run.predict_with({.time = [&model, microbatches](std::int64_t /*steps*/) {
      return Prediction{.ideal_idle = ideal_idle_share(model.size(), microbatches)};
    }});
  }
  for (Epoch& epoch : run.epochs()) {
    model.begin_moves();
    for (const Batch& batch : epoch.training_batches(train_loader)) {
      train_step(settings, model, batch, *optimizer, epoch.train_sums());
    }
    epoch.set_busiest_link(model.busiest_link());  // for --summary
    evaluate(model, epoch, test_loader);
  }
}

void train(const Settings& settings) {
  if (settings.pipeline.form == ControllerForm::remote) {
    return train_remotely(settings);  // a master and workers, by remote calls (remote.cpp)
  }
  train_on_devices(settings);
}

const Chapter kChapter{
    .number = 7,
    .program = "ch07_one_controller",
    .title = "Chapter 7: one controller, which places the layers of a model on several devices.",
    .example = "ch07_one_controller --data data/generated --form pipelined --epochs 5 --out runs/controller",
    .defaults = {.training = {.microbatches = 8}, .world = {.ranks = 4}},
};

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::run_program(argc, argv, stagecoach::kChapter, stagecoach::train); }
