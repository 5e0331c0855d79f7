/// @file
/// Chapter 8: tensor parallelism, and all three directions at once.
///
/// Chapters 2 to 7 cut a model between its layers, or copy it. Here the layers themselves are cut. Of a pair of linear
/// layers, the first is cut by outputs: each rank computes a slice of the features. The second is cut by inputs: each
/// rank takes its slice of the features, and the ranks add up what they get. Nothing has to be exchanged between the
/// two. A rank holds 1 / tp of the weights of the pair, and computes 1 / tp of it (parallel/tensor_parallel/).
///
/// The ranks form a grid, --mesh dp=D,pp=P,tp=T. The model is first split into P stages; the layers of each stage are
/// cut into T slices; and D such pipelines share each batch. So a rank is in three groups, and each exchanges something
/// else: the tensor group activations, several times per layer; the pipeline activations, once per stage; the
/// data-parallel group gradients, once per step.

#include <optional>

#include "chapters/08_tensor_parallel/explain.h"
#include "chapters/08_tensor_parallel/mesh_plan.h"
#include "chapters/common/open.h"
#include "chapters/common/pipeline_steps.h"
#include "chapters/common/plan.h"
#include "chapters/common/prediction.h"
#include "chapters/common/program.h"
#include "chapters/common/run.h"
#include "parallel/comm/comm_thread.h"
#include "parallel/data_parallel/average_gradients.h"
#include "parallel/data_parallel/reducer.h"
#include "parallel/data_parallel/same_model.h"
#include "parallel/launch/mesh.h"
#include "parallel/tensor_parallel/tensor_parallel_layers.h"
#include "parallel/wrappers/mesh_role.h"

namespace stagecoach {
namespace {

/// Returns what makes this rank's slices of the layers. With one tensor rank, null: the layers are then whole or, with
/// --tensor-slices, computed in slices on one device, the oracle of this chapter.
std::shared_ptr<const LayerFactory> layers_for(const Settings& settings, Communicator& tensor_group,
                                               CommThread* comm_thread) {
  if (tensor_group.size() == 1) {
    return nullptr;
  }
  return std::make_shared<TensorParallelLayers>(tensor_group, sequence_of(settings.training),
                                                classes_of(settings.training), comm_thread);
}

void train_rank(const Plan& plan, const TrainTest& data, Rank& rank) {
  const MeshSizes& sizes = *plan.settings.data_parallel.mesh;
  const RankOrder& order = *plan.settings.data_parallel.rank_order;
  const MeshPosition position = position_of(rank.index, sizes, order);
  Mesh mesh(rank.comm, sizes, order);  // three communicators: the ranks that differ from this one in one direction only
  const Rank in_pipeline{position.pipeline, sizes.pipeline, rank.device, mesh.pipeline()};

  // Prints, measures and saves. A rank has the layers of a rank of the first pipeline, whole or a slice of each.
  Run run = make_run(plan.settings, rank.comm, mesh_role(role_of(plan), rank.index, sizes, order, &mesh.tensor()));
  run.print_notes(plan.notes);
  // With --overlap, a second thread of this rank sums gradients of activations while the rank computes others.
  std::optional<CommThread> comm_thread;
  if (plan.settings.data_parallel.overlap) {
    comm_thread.emplace(mesh.tensor());
  }
  // This rank's slices of its stages' layers, which begin with the values of one device's weights; their optimizer; and
  // loaders of batches. All ranks of a tensor group load the same images.
  PipelineWorker worker(plan, data, in_pipeline,
                        {.layers = layers_for(plan.settings, mesh.tensor(), comm_thread ? &*comm_thread : nullptr),
                         .loss = loss_of(plan.settings.training, &mesh.tensor()),
                         .shard = {position.data, sizes.data}});
  const NamedTensors parameters = sizes.data > 1 ? worker.layers->named_parameters() : NamedTensors{};  // of replicas
  Reducer reducer(parameters, mesh.data(), {.caps = plan.settings.data_parallel.caps()});
  // --resume loads both; each epoch saves both to --out, as whole weights: a run can go on with another pp and tp.
  run.set_up_checkpoints(data, *worker.layers, *worker.optimizer);
  broadcast_module(*worker.layers, mesh.data());
  run.predict_with(make_predictor(plan, worker.pipeline.log(), {&mesh.tensor(), &mesh.data()}));
  // The ranks of a tensor group compute the same losses, but only the first of them counts.
  EpochSums uncounted(rank.device);
  const bool counts = position.tensor == 0;
  for (Epoch& epoch : run.epochs()) {
    for (const MicroBatches& batch : epoch.training_batches(worker.train_loader)) {
      reducer.begin(Reducer::Sync::no);
      // The layers exchange what they need in their own forwards and backwards; the table lists the messages between
      // stages, and when the gradients of a stage are reduced.
      forward_backward(worker.pipeline, plan, batch, counts ? epoch.train_sums() : uncounted,
                       [&](int stage) { reducer.reduce_accumulated(worker.stages.at(stage)->named_parameters()); });
      reducer.finish();
      worker.pipeline.update(*worker.optimizer);
    }
    require_equal_replicas(parameters, mesh.data());  // throws unless their weights are equal
    evaluate(worker.pipeline, plan, epoch, worker.test_loader, counts ? nullptr : &uncounted);
  }
  print_sample(plan.settings, worker.pipeline, plan.schedule, mesh.pipeline(), rank.index == 0, &mesh.tensor());
}

void train(const Settings& settings) {
  const TrainTest data = open_data(settings);
  if (settings.run.explain) {
    return explain_mesh(settings, data.train);
  }
  const Plan plan = make_mesh_plan(settings, data.train);
  launch(open_world(settings.world), [&](Rank& rank) { train_rank(plan, data, rank); });
}

const Chapter kChapter{
    .number = 8,
    .program = "ch08_tensor_parallel",
    .title = "Chapter 8: tensor parallelism: layers that are cut over ranks, with pipelines and data parallelism.",
    .example = "ch08_tensor_parallel --data data/generated --model vit --mesh dp=1,pp=2,tp=2 --microbatches 4",
    .defaults = {.training = {.model = "vit"},
                 .pipeline = {.chunks = 0},
                 .data_parallel = {.mesh = "tp=2"},
                 .world = {.ranks = 2}},
    .schedules = mesh_schedules(),
};

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::run_program(argc, argv, stagecoach::kChapter, stagecoach::train); }
