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
#include "chapters/common/run_log.h"
#include "core/autograd/backward.h"
#include "core/ops.h"
#include "core/replay.h"
#include "datasets/device_loader.h"

namespace stagecoach {
namespace {

/// One step of training on a batch: images [N, 3, 32, 32] as bytes, labels [N]. The gradients of its micro-batches add
/// up to that of the whole batch (but for batch norm, which sees one micro-batch at a time). Nothing here waits for the
/// device, so that a GPU can be given the whole step at once.
void train_step(const Tensor& images, const Tensor& labels, std::int64_t microbatches, Module& model,
                Optimizer& optimizer, EpochSums& sums) {
  const double share = 1.0 / static_cast<double>(images.size(0));  // of each picture in the batch's mean loss
  const std::vector<Tensor> pictures = micro_batches(images, microbatches);
  const std::vector<Tensor> truths = micro_batches(labels, microbatches);
  for (std::size_t i = 0; i < pictures.size(); ++i) {
    // 1. Forward. Autograd keeps what the backward will need.
    const Tensor scores = model.forward(normalize(pictures[i]));           // [n, 10]
    const Tensor loss = cross_entropy(scores, truths[i], Reduction::sum);  // []

    // 2. Backward. The sum times 1 / N, not the mean of n: a smaller last micro-batch weighs what it should.
    backward(loss, Tensor::full({}, share, loss.dtype(), loss.device()));

    accumulate(loss, sums.loss);
    count_correct(scores, truths[i], sums.correct);
  }

  // 3. The optimizer's step; then the gradients start anew.
  const Span span("optimizer", "update");
  optimizer.step();
  optimizer.zero_grad();
}

/// The share of pictures for which the model scores the right class highest. `after_batch` is called between batches.
template <class AfterBatch>
double accuracy(DeviceLoader& loader, const Dataset& data, Module& model, Device device,
                const AfterBatch& after_batch) {
  const NoGrad no_grad;  // nothing is kept for a backward
  model.train(false);
  Tensor correct = Tensor::zeros({}, DType::int32, device);
  loader.start_epoch(1);
  while (const auto batch = loader.next()) {
    count_correct(model.forward(normalize(batch->images)), batch->labels, correct);
    after_batch();
  }
  model.train(true);
  return correct.item() / static_cast<double>(data.size());
}

void train(const Settings& settings) {
  const Device device = open_device(settings.world);
  const TrainTest data = open_data(settings);
  if (settings.run.explain) {
    return explain(settings, data, device);
  }

  RunLog log(settings, device);
  const auto model = open_model(settings.training, data.train, device);
  const auto optimizer = open_optimizer(settings.training, model->named_parameters());
  log.restore(*model, *optimizer);
  DeviceLoader training(training_loader(settings.training, settings.world, data.train), device);
  DeviceLoader testing(test_loader(settings.training, settings.world, data.test), device);
  Replay replay(device, settings.world.graph && !settings.run.profile);  // one launch a step, where the device can

  while (log.epochs_left()) {
    training.start_epoch(log.progress().epoch, log.progress().step);
    log.start_epoch(training.batches());
    while (const auto batch = log.next(training)) {
      replay.run({batch->images, batch->labels}, [&](std::span<const Tensor> in) {
        train_step(in[0], in[1], settings.training.microbatches, *model, *optimizer, log.sums());
      });
      log.add_step(batch->images.size(0), *model, *optimizer);
    }
    log.stop_clock();
    const double share = accuracy(testing, data.test, *model, device, [&] { log.stop_if_asked(*model, *optimizer); });
    log.finish_epoch(share, *model, *optimizer);
  }
  log.finish();
}

const Chapter kChapter{
    .number = 1,
    .program = "ch01_single_device",
    .title = "Chapter 1: one device trains a model on pictures.",
    .example = "ch01_single_device --data data/generated --epochs 5 --optimizer adam --out runs/first",
};

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::run_program(argc, argv, stagecoach::kChapter, stagecoach::train); }
