#include "chapters/09_sharded_data_parallel/sharded_replica.h"

#include <algorithm>

#include "chapters/common/open.h"
#include "chapters/common/sample.h"
#include "core/autograd/grad_mode.h"
#include "core/base/throw_if.h"
#include "core/ops.h"
#include "nn/batch_position.h"
#include "parallel/data_parallel/sync_batch_norm.h"
#include "parallel/wrappers/sharded_data_parallel.h"

namespace stagecoach {
namespace {

/// Unit by unit, with the choices of --shard, --reshard-after-forward, --prefetch, --unit-layers and --accumulation.
class Units final : public ShardedReplica {
 public:
  Units(const Sequential& model, Communicator& comm, const ShardedSettings& settings)
      : sharded_(model, comm, settings) {}
  NamedTensors shards() override { return sharded_.shards(); }
  Tensor forward(const Tensor& x) override { return sharded_.forward(x); }
  void accumulate(const Tensor& loss, std::int64_t samples) override { sharded_.accumulate(loss, samples); }
  void backward(const Tensor& loss, std::int64_t samples) override { sharded_.backward(loss, samples); }
  void clip_norms_of(Optimizer& optimizer) override { sharded_.sum_squares_for(optimizer); }
  RankRole role() override { return sharded_.role(); }
  void load_weights(const std::string& path) { sharded_.load_weights(path); }

 private:
  ShardedDataParallel sharded_;
};

ShardedSettings sharded_settings(const Settings& settings) {
  const ReplicaSettings& replicas = settings.data_parallel;
  return {.shard = *replicas.shard,
          .reshard_after_forward = replicas.reshard_after_forward,
          .prefetch = replicas.prefetch,
          .accumulation = replicas.accumulation,
          .compress = replicas.compress,
          .copies = mesh_of(settings).data,
          .unit_layers = *replicas.unit_layers,
          .seed = settings.training.seed,
          .tied = tied_names(settings.training)};
}

}  // namespace

void ShardedReplica::accumulate(const Tensor& /*loss*/, std::int64_t /*samples*/) {
  fail("by hand: expected one micro-batch per step");
}

void ShardedReplica::clip_norms_of(Optimizer& optimizer) {
  STAGECOACH_CHECK(!optimizer.clips(), "by hand: expected no clipping");
}

void ShardedReplica::forward_backward(const MicroBatches& batch, EpochSums& sums) {
  for (int i = 0; i < batch.count(); ++i) {
    const BatchScope position(batch.position_of(i));
    const Tensor logits = forward(batch.input(i));                               // [n, classes]
    const Tensor loss = cross_entropy(logits, batch.target(i), Reduction::sum);  // []
    sums.add(loss, logits, batch.target(i));
    if (i + 1 < batch.count()) {
      accumulate(loss, batch.global_size);
    } else {
      backward(loss, batch.global_size);
    }
  }
}

void ShardedReplica::evaluate(Module& model, Epoch& epoch, MicroBatchLoader& loader) {
  const NoGrad no_grad;
  model.train(false);
  for (const MicroBatches& batch : epoch.test_batches(loader)) {
    count_correct(forward(batch.input(0)), batch.target(0), epoch.test_sums().correct);
  }
  model.train(true);
}

void ShardedReplica::print_sample(const Settings& settings, Module& model, const Rank& rank) {
  model.train(false);
  stagecoach::print_sample(
      settings, [&](const Tensor& tokens) { return forward(tokens.to(rank.device)); }, {}, rank.index == 0);
  model.train(true);
}

std::shared_ptr<Sequential> make_blank_model(const Settings& settings, const Dataset& data, Communicator& comm) {
  auto model = make_model_of(settings.training, data);
  if (settings.data_parallel.sync_batch_norm) {
    synchronise_batch_norm(*model, comm);
  }
  return model;
}

std::unique_ptr<ShardedReplica> make_replica_of_units(const Settings& settings, const Sequential& model,
                                                      Communicator& comm) {
  auto units = std::make_unique<Units>(model, comm, sharded_settings(settings));
  if (!settings.training.weights.empty()) {
    units->load_weights(settings.training.weights);
  }
  return units;
}

MicroBatchLoader loader_of(const Settings& settings, const Dataset& data, LoaderFor purpose, const Rank& rank) {
  return {settings,
          data,
          purpose,
          rank.device,
          MicroBatchLoader::Needs::inputs_and_targets,
          purpose == LoaderFor::training ? settings.training.microbatches : 1,
          {rank.index, rank.world}};
}

void require_trainable(const Settings& settings, const Dataset& data) {
  const RunSettings& run = settings.run;
  const TrainingSettings& training = settings.training;
  const std::int64_t rest = run.explain ? 0 : data.size() % training.batch_size;  // it plans a whole batch
  const std::int64_t least = rest == 0 ? std::min(training.batch_size, data.size()) : rest;
  const std::int64_t parts = settings.world.ranks * training.microbatches;
  const bool by_hand = settings.data_parallel.by_hand;
  const char* flag = by_hand && !run.out.empty()            ? "out"
                     : by_hand && !run.resume.empty()       ? "resume"
                     : by_hand && !training.weights.empty() ? "weights"
                     : by_hand && training.tie_head         ? "tie-head"
                                                            : nullptr;
  throw_if<UsageError>(flag != nullptr,
                       "--{}: with --by-hand, a rank has a part of one long parameter, and no layer that could be "
                       "saved, loaded or tied; leave out one of them",
                       flag == nullptr ? "" : flag);
  throw_if<UsageError>(!training.weights_except.empty(),
                       "--weights-except: this chapter does not have it yet; leave out the flag");
  throw_if<UsageError>(training.microbatches > 1 && least < parts,
                       "--microbatches {}: all ranks need the same number of micro-batches, but the last batch of an "
                       "epoch has {} images for {} ranks; give fewer, or another --batch-size",
                       training.microbatches, least, settings.world.ranks);
  throw_if<UsageError>(training.model.starts_with("resnet") && !settings.data_parallel.sync_batch_norm && least < parts,
                       "--model {}: batch norm needs an image on each rank, but the last batch of an epoch has {} for "
                       "{} ranks; give --sync-batch-norm, another --batch-size, or fewer ranks",
                       training.model, least, settings.world.ranks);
}

}  // namespace stagecoach
