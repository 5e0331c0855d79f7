#include "chapters/06_ddp/replica.h"

#include "chapters/06_ddp/step_model.h"
#include "chapters/common/open.h"
#include "core/autograd/backward.h"
#include "core/ops.h"
#include "core/trace.h"
#include "parallel/data_parallel/average_gradients.h"
#include "parallel/data_parallel/same_model.h"
#include "parallel/data_parallel/step_timeline.h"
#include "parallel/data_parallel/sync_batch_norm.h"

namespace stagecoach {

Replica::Replica(const Start& start)
    : settings_(start.settings),
      team_(start.team),
      training_(start.data.train),
      testing_(start.data.test),
      rank_(start.rank),
      model_(open_model(settings_.training, training_, rank_.device)),
      optimizer_(open_optimizer(settings_.training, model_->named_parameters())),
      parameters_(model_->named_parameters()),
      times_(rank_.comm, parameters_.size()) {
  if (settings_.data_parallel.sync_batch_norm) {
    synchronise_batch_norm(*model_, rank_.comm);
  }
}

StepLoader Replica::loader(LoaderFor purpose) {
  const Shard shard = team_.shard_of(rank_.index);
  const bool trains = purpose == LoaderFor::training;
  const Dataset& data = trains ? training_ : testing_;
  Loader loader = trains ? training_loader(settings_.training, settings_.world, data, true, shard)
                         : test_loader(settings_.training, settings_.world, data, true, shard);
  return {std::move(loader),
          data.size(),
          settings_.training.batch_size,
          trains ? settings_.training.microbatches : 1,
          rank_.device,
          StepLoader::Needs::data,
          shard};
}

void Replica::start() { start_alike(*model_, rank_.comm); }

void Replica::run_shard(const Step& step, EpochSums& sums,
                        const std::function<void(bool last, const Tensor& loss)>& before_backward) {
  times_.begin_step();
  const Tensor share = Tensor::full({}, 1.0 / static_cast<double>(step.pictures), DType::float32, rank_.device);
  for (std::size_t i = 0; i < step.sizes.size(); ++i) {
    const Tensor scores = model_->forward(normalize(step.images[i]));           // [n, 10]
    const Tensor loss = cross_entropy(scores, step.labels[i], Reduction::sum);  // []
    accumulate(loss, sums.loss);
    count_correct(scores, step.labels[i], sums.correct);
    const bool last = i + 1 == step.sizes.size();
    if (last) {
      times_.begin_backward();
    }
    before_backward(last, loss);
    const Span span("backward", "action");
    backward(loss, share);
  }
  times_.end_backward();
}

void Replica::communicate(const char* name, const std::function<void()>& sums) {
  Clock& clock = rank_.comm.clock();
  const double begin = clock.now();
  sums();
  const double end = clock.now();
  record_beside(name, "communication", begin, end - begin);
  times_.end_reductions({{begin, end}});
}

void Replica::update() {
  {
    const Span span("optimizer", "update");
    optimizer_->step();
    optimizer_->zero_grad();
  }
  times_.end_step();
}

Expected Replica::finish_epoch(std::int64_t steps) {
  require_equal_replicas(parameters_, rank_.comm);
  broadcast_tensors(model_->named_buffers(), rank_.comm);  // batch norm's are of the pictures that a rank met
  const StepCosts costs = times_.mean();
  times_.clear();
  Expected expected{.overlap = costs.overlap};
  const Timeline step = timeline_of(*settings_.data_parallel.mode, step_of(settings_, team_, parameters_, costs));
  // An epoch that is resumed at its end measured nothing. What PowerSGD sends differs from matrix to matrix.
  if (costs.backward > 0 && settings_.data_parallel.compress != CompressionKind::powersgd) {
    expected.predicted_idle = step.idle();
    expected.predicted_seconds = step.seconds * static_cast<double>(steps);
  }
  return expected;
}

double Replica::accuracy(StepLoader& testing, const std::function<void()>& after_batch) {
  const NoGrad no_grad;
  model_->train(false);
  Tensor correct = Tensor::zeros({}, DType::int32, rank_.device);
  testing.start_epoch(1);
  while (const auto step = testing.next()) {
    if (step->images[0].size(0) > 0) {  // a last batch may have fewer pictures than there are ranks
      count_correct(model_->forward(normalize(step->images[0])), step->labels[0], correct);
    }
    after_batch();
  }
  model_->train(true);
  return correct.item() / static_cast<double>(testing_.size());
}

}  // namespace stagecoach
