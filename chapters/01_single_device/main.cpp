/// @file
/// Chapter 1: one device trains the ConvNet.
///
/// Training is three steps, again and again: forward (what does the model say, and how wrong is it?), backward (how
/// would each weight change the loss?), and the optimizer's step (move each weight a little against that). Every later
/// chapter spreads these three over devices; this one is what they are compared with.

#include "chapters/01_single_device/explain.h"
#include "chapters/common/micro_batches.h"
#include "chapters/common/open.h"
#include "chapters/common/program.h"
#include "chapters/common/run.h"
#include "core/autograd/backward.h"
#include "core/ops.h"
#include "core/replay.h"
#include "datasets/device_loader.h"

namespace stagecoach {
namespace {

/// One step of training on a batch: images [N, 3, 32, 32] as bytes, labels [N]. The gradients of its micro-batches add
/// up to that of the whole batch (except for batch norm, which sees one micro-batch at a time). Nothing here waits for
/// the device, so that a GPU can be given the whole step at once.
void train_step(const Tensor& images, const Tensor& labels, std::int64_t microbatches, Module& model,
                Optimizer& optimizer, EpochSums& sums) {
  const double share = 1.0 / static_cast<double>(images.size(0));  // of each image in the batch's mean loss
  const std::vector<Tensor> x = micro_batches(images, microbatches);
  const std::vector<Tensor> y = micro_batches(labels, microbatches);
  for (std::size_t i = 0; i < x.size(); ++i) {
    // 1. Forward. Autograd keeps what the backward will need.
    const Tensor logits = model.forward(normalize(x[i]));             // [n, 10]
    const Tensor loss = cross_entropy(logits, y[i], Reduction::sum);  // []

    // 2. Backward. The sum times 1 / N, not the mean of n: a smaller last micro-batch weighs what it should.
    backward(loss, Tensor::full({}, share, loss.dtype(), loss.device()));

    sums.add(loss, logits, y[i]);
  }

  // 3. The optimizer's step; then the gradients start from zero.
  const Span span("optimizer", "update");
  optimizer.step();
  optimizer.zero_grad();
}

/// Counts the test images for which the model's logit of the right class is highest.
void evaluate(Module& model, Epoch& epoch, DeviceLoader& batches) {
  const NoGrad no_grad;  // nothing is kept for a backward
  model.train(false);
  for (const Batch& batch : epoch.test(batches)) {
    count_correct(model.forward(normalize(batch.images)), batch.labels, epoch.test_sums().correct);
  }
  model.train(true);
}

void train(const Settings& settings) {
  const Device device = open_device(settings.world);
  const TrainTest data = open_data(settings);
  if (settings.run.explain) {
    return explain(settings, data, device);
  }

  Run run(settings, device);  // prints, measures, saves, and stops on SIGINT (chapters/common/run.h)
  const auto model = open_model(settings.training, data.train, device);
  const auto optimizer = open_optimizer(settings.training, model->named_parameters());
  run.restore(*model, *optimizer);  // with --resume from a checkpoint; from now on both are saved after each epoch
  DeviceLoader train_batches(training_loader(settings.training, settings.world, data.train), device);
  DeviceLoader test_batches(test_loader(settings.training, settings.world, data.test), device);
  Replay replay(device, settings.world.graph && !settings.run.profile);  // one launch per step, where the device can

  for (Epoch& epoch : run.epochs()) {
    for (const Batch& batch : epoch.train(train_batches)) {
      replay.run({batch.images, batch.labels}, [&](std::span<const Tensor> in) {
        train_step(in[0], in[1], settings.training.microbatches, *model, *optimizer, epoch.train_sums());
      });
    }
    evaluate(*model, epoch, test_batches);
  }
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
