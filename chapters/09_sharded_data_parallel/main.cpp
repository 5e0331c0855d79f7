/// @file
/// Chapter 9: sharded data parallelism. Each rank trains on its shard of each batch, as in chapter 6, but keeps only
/// its part of the weights, gradients and optimizer state.
///
/// A rank needs whole weights only while it computes with them: it gathers them from the other ranks, and frees them
/// afterwards. `ByHand` does so with the whole model at once. The library does it unit by unit, a few layers at a time,
/// and communicates while it computes (parallel/wrappers/sharded_data_parallel.h).

#include "chapters/09_sharded_data_parallel/explain.h"
#include "chapters/09_sharded_data_parallel/sharded_replica.h"
#include "chapters/common/open.h"
#include "chapters/common/plan.h"
#include "chapters/common/program.h"
#include "chapters/common/run.h"
#include "core/autograd/backward.h"
#include "parallel/data_parallel/flat.h"
#include "parallel/data_parallel/same_model.h"

namespace stagecoach {
namespace {

/// --by-hand: the whole model is one unit. Its parameters are views of `weights_`, whose memory comes and goes.
class ByHand final : public ShardedReplica {
 public:
  ByHand(Sequential& model, Communicator& comm, std::uint64_t seed) : model_(model), comm_(comm) {
    model.materialize(seed, comm.device());
    parameters_ = model.named_parameters();
    weights_ = padded(flattened(tensors_of(parameters_)), comm.size());  // [n part]: all ranks' parts
    const std::vector<Tensor> views = views_of(weights_, tensors_of(parameters_));
    for (std::size_t i = 0; i < views.size(); ++i) {
      parameters_[i].second.rebind(views[i]);
    }
    const std::int64_t part = weights_.numel() / comm.size();
    shard_ = weights_.narrow(comm.rank() * part, part).clone().set_requires_grad(true);  // [part]: this rank's
    free();
  }
  NamedTensors shards() override { return {{"shard", shard_}}; }

  Tensor forward(const Tensor& x) override {
    gather();
    Tensor y = model_.forward(x);
    free();  // the graph still refers to the weights: they must be back before its backward
    return y;
  }
  void backward(const Tensor& loss, std::int64_t samples) override {
    gather();
    stagecoach::backward(loss, Tensor::full({}, 1.0 / static_cast<double>(samples), loss.dtype(), loss.device()));
    free();
    const Tensor whole = padded(flattened(gradients_of(parameters_)), comm_.size());  // [n part]: of its samples
    for (auto& [name, parameter] : parameters_) {
      parameter.zero_grad();
    }
    shard_.set_grad(comm_.reduce_scatter(whole));  // [part]: over all ranks. The optimizer updates the shard with it.
  }

 private:
  void gather() {
    Tensor whole = Tensor::empty(weights_.shape(), weights_.dtype(), weights_.device());
    comm_.all_gather_into(whole, shard_);
    weights_.storage()->take_memory(*whole.storage());
  }
  void free() { weights_.storage()->drop_memory(); }

  Sequential& model_;
  Communicator& comm_;
  NamedTensors parameters_;
  Tensor weights_;
  Tensor shard_;
};

/// Returns this rank's side of the model: by hand, or with the choices of --shard, --prefetch and more.
std::unique_ptr<ShardedReplica> make_replica(const Settings& settings, Sequential& model, Communicator& comm) {
  return settings.data_parallel.by_hand ? std::make_unique<ByHand>(model, comm, settings.training.seed)
                                        : make_replica_of_units(settings, model, comm);
}

void train_rank(const Settings& settings, const TrainTest& data, Rank& rank) {
  Run run = make_run(settings, rank.comm, {.splits_losses = true});      // prints, measures, saves
  const auto model = make_blank_model(settings, data.train, rank.comm);  // has no memory: no rank ever holds all of it
  const auto replica = make_replica(settings, *model, rank.comm);
  const auto optimizer = make_optimizer(settings.training, replica->shards());
  replica->clip_norms_of(*optimizer);  // of --clip-norm: the norm of all ranks' gradients
  run.set_role(replica->role());
  run.set_up_checkpoints(data, *model, *optimizer);  // --resume: loads both; each epoch saves both
  MicroBatchLoader train_loader = loader_of(settings, data.train, LoaderFor::training, rank);
  MicroBatchLoader test_loader = loader_of(settings, data.test, LoaderFor::testing, rank);
  for (Epoch& epoch : run.epochs()) {
    for (const MicroBatches& batch : epoch.training_batches(train_loader)) {
      replica->forward_backward(batch, epoch.train_sums());  // then each shard has its gradient: the sum over all ranks
      const Span span("optimizer", "update");
      optimizer->step();
      optimizer->zero_grad();
    }
    broadcast_tensors(model->named_buffers(), rank.comm);  // batch norm's statistics, which differ between ranks
    replica->evaluate(*model, epoch, test_loader);
  }
  replica->print_sample(settings, *model, rank);  // --sample: what a model of text writes
}

void train(const Settings& settings) {
  const TrainTest data = open_data(settings);
  require_trainable(settings, data.train);
  if (settings.run.explain) {
    return explain(settings, data.train, make_replica);  // plans a step, and does not train
  }
  launch_ranks(open_world(settings.world), settings.training.inject, [&](Rank& r) { train_rank(settings, data, r); });
}

const Chapter kChapter{
    .number = 9,
    .program = "ch09_sharded_data_parallel",
    .title = "Chapter 9: sharded data parallelism: each rank keeps a part of the weights, gradients and states.",
    .example = "ch09_sharded_data_parallel --data data/generated --model vit --ranks 4 --shard parameters",
    .defaults = {.data_parallel = {.mode = DataParallelMode::buckets, .shard = Sharded::parameters},
                 .world = {.ranks = 2}},
};

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::run_program(argc, argv, stagecoach::kChapter, stagecoach::train); }
