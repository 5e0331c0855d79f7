/// @file
/// Chapter 1: one device trains the ConvNet.
///
/// Training is three steps, again and again: forward (what does the model say, and how wrong is it?), backward (how
/// would each weight change the loss?), and the optimizer's step (move each weight a little against that). Every later
/// chapter spreads these three over devices; this one is what they are compared with.

#include "chapters/01_single_device/explain.h"
#include "chapters/01_single_device/micro_batches.h"
#include "chapters/common/open.h"
#include "chapters/common/program.h"
#include "chapters/common/run_log.h"
#include "core/autograd/backward.h"
#include "core/ops.h"

namespace stagecoach {
namespace {

/// One step of training on a batch. The gradients of its micro-batches add up to that of the whole
/// batch (but for batch norm, which sees one micro-batch at a time).
StepResult train_step(const Batch& batch, std::int64_t microbatches, Module& model, Optimizer& optimizer,
                      Device device) {
  StepResult result{.pictures = batch.images.size(0)};
  const double share = 1.0 / static_cast<double>(result.pictures);  // of each picture in the batch's mean loss
  Tensor correct = Tensor::zeros({}, DType::int32, device);
  for (const MicroBatch& part : micro_batches(batch, microbatches)) {
    const Tensor images = normalize(part.images.to(device));  // [n, 3, 32, 32], bytes until here
    const Tensor labels = part.labels.to(device);             // [n]

    // 1. Forward. Autograd keeps what the backward will need.
    const Tensor scores = model.forward(images);                        // [n, 10]
    const Tensor loss = cross_entropy(scores, labels, Reduction::sum);  // []

    // 2. Backward. The sum times 1 / N, not the mean of n: a smaller last micro-batch weighs what it should.
    backward(loss, Tensor::full({}, share, loss.dtype(), device));

    result.loss_sum += loss.item();
    count_correct(scores, labels, correct);
  }

  // 3. The optimizer's step; then the gradients start anew.
  const Span span("optimizer", "update");
  optimizer.step();
  optimizer.zero_grad();
  result.correct = static_cast<std::int64_t>(correct.item());
  return result;
}

/// The share of pictures for which the model scores the right class highest. `after_batch` is called between batches.
template <class AfterBatch>
double accuracy(Loader& loader, const Dataset& data, Module& model, Device device, const AfterBatch& after_batch) {
  const NoGrad no_grad;  // nothing is kept for a backward
  model.train(false);
  Tensor correct = Tensor::zeros({}, DType::int32, device);
  loader.start_epoch(1);
  while (const auto batch = loader.next()) {
    count_correct(model.forward(normalize(batch->images.to(device))), batch->labels.to(device), correct);
    after_batch();
  }
  model.train(true);
  return correct.item() / static_cast<double>(data.size());
}

void train(const Settings& settings) {
  const Device device = open_device(settings);
  const TrainTest data = open_data(settings);
  if (settings.explain) {
    return explain(settings, data, device);
  }

  RunLog log(settings, device);
  const auto model = open_model(settings, data.train, device);
  const auto optimizer = open_optimizer(settings, *model);
  log.restore(*model, *optimizer);
  Loader training = training_loader(settings, data.train);
  Loader testing = test_loader(settings, data.test);

  while (log.epochs_left()) {
    training.start_epoch(log.progress().epoch, log.progress().step);
    log.start_epoch(training.batches());
    while (const auto batch = log.wait_for([&] { return training.next(); })) {
      log.add_step(train_step(*batch, settings.microbatches, *model, *optimizer, device), *model, *optimizer);
    }
    log.stop_clock();
    const double share = accuracy(testing, data.test, *model, device, [&] { log.stop_if_asked(*model, *optimizer); });
    log.finish_epoch(share, *model, *optimizer);
  }
  log.finish();
}

const Chapter kChapter{
    .program = "ch01_single_device",
    .title = "Chapter 1: one device trains a model on pictures.",
    .example = "ch01_single_device --data data/generated --epochs 5 --optimizer adam --out runs/first",
    .flags = {"microbatches", "explain"},
};

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::run_program(argc, argv, stagecoach::kChapter, stagecoach::train); }
