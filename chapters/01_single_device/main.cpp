/// @file
/// Chapter 1: one device trains a model, by default a small ConvNet.
///
/// Training is three steps, again and again: forward (what does the model say, and how wrong is it?), backward (how
/// does the loss change with each weight?), and the optimizer's step (move each weight a little in the direction that
/// lowers the loss). Every later chapter spreads these three over devices; this chapter is the baseline.

#include "chapters/01_single_device/explain.h"
#include "chapters/01_single_device/grouped_gradients.h"
#include "chapters/common/open.h"
#include "chapters/common/program.h"
#include "chapters/common/run.h"
#include "chapters/common/sample.h"
#include "core/autograd/backward.h"
#include "core/ops.h"
#include "core/replay.h"
#include "datasets/device_loader.h"
#include "datasets/shares.h"
#include "nn/batch_position.h"

namespace stagecoach {
namespace {

/// One training step on a batch: images [N, 3, H, W] as bytes, labels [N]. With --microbatches the batch is processed
/// in that many parts, which takes less memory; the gradients of the parts add up to the gradient of the whole batch
/// (except with batch norm, which normalizes each part separately).
///
/// Nothing here waits for the device: `sums` and the optimizer's count of steps are tensors on it, and nothing reads
/// them here. So a GPU can record the whole step and replay it (Replay, below).
void train_step(const Tensor& images, const Tensor& labels, const TrainingSettings& training, Module& model,
                const LossFunction& summed_loss, Optimizer& optimizer, EpochSums& sums) {
  const double share = 1.0 / static_cast<double>(images.size(0));  // the weight of one image in the batch's mean loss
  const std::vector<Tensor> x = micro_batches(images, training.microbatches, training.sum_groups);
  const std::vector<Tensor> y = micro_batches(labels, training.microbatches, training.sum_groups);
  GroupedGradients gradients(model.named_parameters(), images.size(0), training.sum_groups);  // --sum-groups
  BatchPosition position = BatchScope::current().value_or(BatchPosition{});
  for (std::size_t i = 0; i < x.size(); ++i) {
    const BatchScope scope(position);  // layers that draw random numbers (--dropout) draw them by step and sample
    position.first += x[i].size(0);
    // 1. Forward. Autograd keeps what the backward will need. model_input() makes floats from -1 to 1 out of the bytes.
    const Tensor logits = model.forward(model_input(x[i]));  // [n, classes]
    const Tensor loss = summed_loss(logits, y[i]);           // []: summed over the images, not their mean

    // 2. Backward, starting from 1 / N: the loss is summed over the micro-batch and divided by the size of the whole
    // batch, so that every image counts equally even if the last micro-batch is smaller.
    backward(loss, Tensor::full({}, share, loss.dtype(), loss.device()));
    gradients.add(x[i].size(0));

    sums.add(loss, logits, y[i]);  // on the device: the loss, and how many predictions are correct
  }

  // 3. The optimizer's step; then the gradients start from zero.
  const Span span("optimizer", "update");  // this scope's name and category in trace.json and in --profile's table
  optimizer.step();
  optimizer.zero_grad();
}

/// Counts the test images that the model classifies correctly, with forwards only: of micro-batches, as in training.
void evaluate(Module& model, std::int64_t microbatch_count, Epoch& epoch, DeviceLoader& loader) {
  const NoGrad no_grad;  // nothing is kept for a backward
  model.train(false);
  for (const Batch& batch : epoch.test_batches(loader)) {
    const std::vector<Tensor> y = micro_batches(batch.targets, microbatch_count);
    for (std::size_t i = 0; const Tensor& x : micro_batches(batch.inputs, microbatch_count)) {
      const Tensor logits = model.forward(model_input(x));
      count_correct(logits, y[i++], epoch.test_sums().correct);  // adds to the last argument
    }
  }
  model.train(true);
}

void train(const Settings& settings) {
  const Device device = open_device(settings.world);  // --device and --threads: here the world is one device
  const TrainTest data = open_data(settings);
  if (settings.run.explain) {
    return explain(settings, data.train, train_step);  // prints what a step would keep in memory, and does not train
  }

  Run run = make_run(settings, device);  // prints, measures and saves; on SIGINT finishes the step, saves and exits
  const auto model = make_model(settings.training, data.train, device);  // for the images and classes of the data
  const LossFunction summed_loss = loss_of(settings.training);
  const auto optimizer = make_optimizer(settings.training, model->named_parameters());
  run.set_up_checkpoints(data, *model, *optimizer);  // --resume: loads both; after each epoch, saves both to --out
  // Loaders make the next batches on a second thread, if --threads leaves a core for it.
  DeviceLoader train_loader(make_loader(settings.training, settings.world, data.train, LoaderFor::training), device);
  DeviceLoader test_loader(make_loader(settings.training, settings.world, data.test, LoaderFor::testing), device);
  // On a GPU, records a step as a CUDA graph. --profile times single operations, so with it they are launched singly.
  Replay replay(device, settings.world.cuda_graph && !settings.run.profile);

  for (Epoch& epoch : run.epochs()) {
    for (const Batch& batch : epoch.training_batches(train_loader)) {
      const BatchScope scope(BatchPosition{(epoch.number() - 1) * train_loader.batch_count() + batch.index});
      // Calls train_step; on a GPU records the second call, and replays it from then on. A recording reads and writes
      // fixed memory: run() copies each batch into the recorded inputs, train_sums() returns the same tensors in all
      // epochs, and a smaller last batch gets a recording of its own.
      replay.run({batch.inputs, batch.targets}, [&](std::span<const Tensor> inputs) {
        train_step(inputs[0], inputs[1], settings.training, *model, summed_loss, *optimizer, epoch.train_sums());
      });
    }
    evaluate(*model, settings.training.microbatches, epoch, test_loader);
  }
  print_sample(settings, *model, device);  // --sample: what a model of text writes
}

const Chapter kChapter{
    .number = 1,
    .program = "ch01_single_device",
    .title = "Chapter 1: one device trains a model on images.",
    .example = "ch01_single_device --data data/generated --epochs 5 --optimizer adam --out runs/first",
};

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::run_program(argc, argv, stagecoach::kChapter, stagecoach::train); }
