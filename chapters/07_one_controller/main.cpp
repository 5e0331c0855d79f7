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

#include "chapters/07_one_controller/clock_ticks.h"
#include "chapters/07_one_controller/explain.h"
#include "chapters/07_one_controller/placed_model.h"
#include "chapters/07_one_controller/remote.h"
#include "chapters/07_one_controller/toy.h"
#include "chapters/common/open.h"
#include "chapters/common/program.h"
#include "chapters/common/run.h"
#include "chapters/common/sample.h"
#include "core/ops.h"
#include "datasets/device_loader.h"
#include "datasets/shares.h"
#include "parallel/training/console.h"

namespace stagecoach {
namespace {

/// The naive forward: the whole batch, through one device after another. While one works, the others have nothing to
/// do, since each needs the output of the one before it.
Tensor naive_forward(const PlacedModel& model, const Tensor& images) {
  Tensor x = images;
  for (int stage = 0; stage < model.size(); ++stage) {
    x = model.forward(stage, 0, x);  // moves x to the stage's device; 0: the only micro-batch
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
      const BatchScope position(position_of_part(images.size(0), i, m));
      Tensor& activation = x[static_cast<std::size_t>(i)];
      activation = model.forward(stage, i, activation);
    }
  }
  return cat(x);
}

/// One training step on a batch in the host's memory: images [N, 3, H, W] as bytes, labels [N].
void train_step(const Settings& settings, const PlacedModel& model, const Batch& batch, Optimizer& optimizer,
                EpochSums& sums) {
  const Tensor logits = settings.pipeline.form == ControllerForm::naive
                            ? naive_forward(model, batch.inputs)
                            : pipelined_forward(model, batch.inputs, settings.training.microbatches);
  // The labels go to the device of the logits; a loss of tensors on two devices is refused.
  const Tensor labels = batch.targets.to(model.devices.back());
  const Tensor loss = cross_entropy(logits, labels, Reduction::sum);  // [], of the whole batch

  // One backward for all devices, from 1 / N. It runs the recorded operations in the reverse order, each on its own
  // device, so it is a pipeline too: the last micro-batch first, and the last device ahead of the others.
  model.backward(loss, 1.0 / static_cast<double>(batch.inputs.size(0)));
  sums.add(loss, logits, labels);  // on the last device

  const Span span("optimizer", "update");  // this scope's name and category in trace.json and in --profile's table
  optimizer.step();                        // each parameter on its own device
  optimizer.zero_grad();
}

/// Trains with --form naive or pipelined: one program, which holds the whole model.
void train_on_devices(const Settings& settings) {
  const std::vector<Device> devices = open_devices(settings.world);  // one per --ranks
  const TrainTest data = open_data(settings);
  PlacedModel model = split_over_devices(settings, data.train, devices);
  const auto asynchronous = make_asynchronous(settings, devices);  // until the end of this function
  if (settings.run.explain) {
    return explain(settings, model, data.train, train_step);  // prints layers and clock ticks, and does not train
  }
  Run run = make_run(settings, devices);  // prints, measures and saves; losses are summed on the last device
  model.place(settings.training, data.train);
  print_text(layer_table(settings.training, model));
  const auto optimizer = make_optimizer(settings.training, model.whole->named_parameters());
  run.set_up_checkpoints(data, *model.whole, *optimizer);  // --resume: loads both; epochs() saves both to --out
  run.predict_with(make_predictor(settings, model));       // the ideal idle share, if the devices are asynchronous
  const Device loads_on = settings.world.data_on_device ? model.devices.front() : Device{};
  DeviceLoader train_loader = make_host_loader(settings, data.train, LoaderFor::training, loads_on);
  DeviceLoader test_loader = make_host_loader(settings, data.test, LoaderFor::testing, loads_on);
  for (Epoch& epoch : run.epochs()) {
    for (const Batch& batch : epoch.training_batches(train_loader)) {
      const BatchScope dropout(BatchPosition{(epoch.number() - 1) * train_loader.batch_count() + batch.index});
      train_step(settings, model, batch, *optimizer, epoch.train_sums());
    }
    evaluate(model, epoch, test_loader, naive_forward);
  }
  print_sample(settings, *model.whole, [&](const Tensor& tokens) { return naive_forward(model, tokens); });
}

void train(const Settings& settings) {
  if (settings.pipeline.form == ControllerForm::remote) {
    return train_remotely(settings);  // a master and workers, by remote calls (remote.cpp)
  }
  settings.training.model == "toy" ? show_toy(settings) : train_on_devices(settings);
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
