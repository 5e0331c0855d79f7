#include "chapters/common/flag_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <system_error>
#include <utility>

#include "chapters/common/open.h"
#include "chapters/common/plan.h"
#include "core/base/parse.h"
#include "core/base/phrases.h"
#include "core/base/throw_if.h"
#include "core/device.h"
#include "datasets/text.h"
#include "nn/models.h"
#include "parallel/launch/launch_environment.h"
#include "parallel/launch/transports.h"
#include "parallel/schedule/pipedream.h"
#include "parallel/schedule/schedule_kinds.h"

namespace stagecoach {
namespace {

/// Returns the ranks that the other flags need.
int usual_ranks(const Settings& s) {
  if (!s.data_parallel.mesh.empty()) {
    return s.data_parallel.mesh->ranks();
  }
  if (!s.pipeline.replicas.empty()) {
    return std::accumulate(s.pipeline.replicas->begin(), s.pipeline.replicas->end(), 0);
  }
  const bool has_master = s.pipeline.form == ControllerForm::remote && s.world.transport == Transport::thread;
  return has_master ? 3 : s.world.ranks;  // with two workers
}

/// Returns the micro-batches that the other flags need, or allow.
std::int64_t usual_microbatches(const Settings& s) {
  if (s.pipeline.form != ControllerForm::pipelined) {
    return 1;
  }
  const std::optional<Versions> versions = s.pipeline.versions;
  std::int64_t count = s.training.microbatches;
  if ((versions == Versions::two_buffers || versions == Versions::flush) && s.run.resume.empty()) {
    const int least = min_batch(replicas_of(s), *versions);
    count = ceil_div(s.world.ranks, least) * least;  // one per rank, or the next valid number
  }
  return std::min(count, s.training.batch_size);
}

}  // namespace

void fill_in_defaults(Settings& s, const WasGiven& was_given) {
  TrainingSettings& training = s.training;
  if (s.world.clock == ClockKind::modelled) {
    s.run.profile = s.run.profile || s.run.explain;  // times that are computed cost nothing
  }
  if (training.lr == 0) {
    const bool is_adam = training.optimizer == OptimizerKind::adam || training.optimizer == OptimizerKind::adamw;
    training.lr = is_adam ? 0.001 : 0.01;
  }
  if (training.momentum < 0) {
    training.momentum = training.optimizer == OptimizerKind::sgd ? 0.9 : 0;
  }
  if (s.chapter == 1 &&
      (training.lr_schedule != RateShape::constant || training.lr_warmup > 0 || training.dropout > 0)) {
    s.world.cuda_graph = false;  // a recorded step would keep the learning rate, or the masks, of its recording
  }
  if (s.pipeline.chunks == 0) {
    const ScheduleKind* kind = find_schedule(s.pipeline.schedule);  // null: a file, or a chapter's own loop
    s.pipeline.chunks = kind == nullptr ? 1 : std::clamp(2, kind->min_chunks, kind->max_chunks);
  }
  if (s.data_parallel.mode && s.data_parallel.mesh->pipeline == 1 && !was_given("schedule")) {
    s.pipeline.schedule.clear();
  }
  if (s.data_parallel.mesh->tensor > 1 && training.tensor_slices == 1) {
    training.tensor_slices = s.data_parallel.mesh->tensor;
  }
  if (!was_given("ranks")) {
    s.world.ranks = usual_ranks(s);
  }
  if (!was_given("microbatches")) {
    training.microbatches = usual_microbatches(s);
  }
  if (s.run.explain && !s.pipeline.profile_file.empty() && s.chapter != 7) {
    s.run.profile = true;  // in seconds. In chapter 7 that would run a step.
  }
  if (training.image_size == 0) {
    training.image_size = default_image_size(training.model);
  }
  const ModelSizes sizes = default_sizes(training.model);
  for (const auto& [size, fallback] : {std::pair(&training.depth, sizes.depth),
                                       {&training.width, sizes.width},
                                       {&training.heads, sizes.heads},
                                       {&training.context, sizes.context}}) {
    *size = *size == 0 ? fallback : *size;
  }
  if (s.data.smoke || (reads_text(training) && !was_given("data") && s.data.source == "generated")) {
    s.data.source = reads_text(training) ? "text:book" : "generated";
  }
}

namespace {

/// Throws UsageError if `is_wrong`. The other arguments are a fmt format string and its values.
template <class... Values>
void refuse_if(bool is_wrong, fmt::format_string<Values...> text, Values&&... values) {
  throw_if<UsageError>(is_wrong, text, std::forward<Values>(values)...);
}

/// Flags that would change nothing in a run.
struct IdleFlags {
  bool are_idle;
  std::string names;
  std::string why;
};

std::vector<IdleFlags> idle_flags(const Settings& s, const Chapter& chapter) {
  const TrainingSettings& training = s.training;
  const PipelineSettings& pipeline = s.pipeline;
  const int tensor_ranks = s.data_parallel.mesh->tensor;
  const int pipeline_ranks = s.data_parallel.mode ? mesh_of(s).pipeline : s.world.ranks;
  const bool has_buckets = s.data_parallel.mode.value_or(DataParallelMode::buckets) == DataParallelMode::buckets;
  const bool has_stages =
      !pipeline.split.empty() || pipeline.balance == Balance::layers || pipeline.balance == Balance::params;
  const bool is_remote = pipeline.form == ControllerForm::remote;
  const std::string table = chapter.schedules.empty() ? "" : chapter.schedules.front();
  return {
      {s.data_parallel.mode && pipeline_ranks == 1,
       "split recompute schedule chunks group receives lowered table-format balance profile-file",
       "this run has no pipeline; leave out the flag, or give a mesh with pipelines, such as --mesh dp=2,pp=2"},
      {!has_buckets, "find-unused compress bucket-size first-bucket-size",
       "only --mode buckets has buckets; leave out the flag, or use that mode"},
      {s.data_parallel.by_hand,
       "shard reshard-after-forward prefetch unit-layers accumulation compress microbatches decay clip-norm",
       "--by-hand gathers the whole model at once, as one long parameter, for one micro-batch; leave out one of them"},
      {s.data_parallel.shard && s.data_parallel.shard != Sharded::parameters, "reshard-after-forward",
       "only --shard parameters frees weights; leave out one of them"},
      {training.microbatches == 1, "accumulation",
       "one micro-batch leaves nothing to accumulate; give --microbatches too, or leave out the flag"},
      {s.data_parallel.mode && pipeline_ranks > 1, "find-unused",
       "a stage uses all of its parameters; leave out the flag"},
      {pipeline.balance == Balance::pipedream && s.run.resume.empty(), "replicas split",
       "--balance pipedream chooses the split and the replicas itself; leave out --split and --replicas"},
      {pipeline.versions == Versions::none, "recompute",
       "with --versions none the forward would run again with newer weights, which the version check cannot detect; "
       "leave out --recompute"},
      {is_by_hand(pipeline), "receives",
       fmt::format("the hand-written loop posts each receive where the tensor is used; leave out the flag, or use "
                   "--schedule {}",
                   table)},
      {is_remote, "microbatches", "--form remote takes its micro-batches from --splits; leave out the flag"},
      {is_remote, "clip-norm lr-schedule lr-warmup",
       "with --form remote each worker updates its own stage, without a norm or a rate of them all; leave out the "
       "flag, or use another --form"},
      {pipeline.versions.value_or(Versions::flush) != Versions::flush, "clip-norm",
       "a norm of all gradients needs those of all stages at once, for which an asynchronous pipeline does not wait; "
       "leave out the flag, or use --versions flush"},
      {is_remote, "explain profile", "--form remote has no schedule and no trace to show; leave out the flag"},
      {pipeline.form == ControllerForm::naive, "microbatches",
       "--form naive does not divide its batches; leave out the flag, or use --form pipelined"},
      {chapter.number == 7 && !is_remote, s.world.clock == ClockKind::modelled ? "timeout" : "link timeout",
       fmt::format("--form {} sends no messages; leave out the flag, or use --form remote", name_of(pipeline.form))},
      {s.world.clock == ClockKind::wall, "link",
       "the wall clock measures the real time of messages; use --clock virtual or --clock modelled, or leave out "
       "--link"},
      {s.world.clock != ClockKind::modelled, "device-model",
       "only --clock modelled computes what a device takes; use it, or leave out the flag"},
      {has_stages && !s.run.explain, "profile-file",
       "only --explain and a split by time use it, but this run's stages are given (--split or --balance, now or in "
       "the run to resume); leave out the flag"},
      {!s.run.explain, "lowered", "only --explain lists a schedule; give --explain too, or leave out the flag"},
      {!s.run.explain || s.run.out.empty(), "table-format",
       "only --explain --out writes tables; give --explain and --out DIR, or leave out the flag"},
      {s.run.explain, "summary", "--explain trains nothing, so there is nothing to sum up; leave out one of them"},
      {s.run.out.empty() || s.run.explain, "report",
       "a report shows what a training wrote to its folder; give --out DIR, without --explain, or leave out the flag"},
      {!s.run.resume.empty(), "weights", "the checkpoint of --resume has the weights; leave out one of them"},
      {s.run.explain, "weights", "--explain trains nothing, whatever the weights; leave out one of them"},
      {training.model == "toy", "weights", "--model toy shows a step from given weights; use another model"},
      {training.weights.empty(), "weights-except", "it is for --weights only; leave out the flag, or give both"},
      {s.run.resume.empty(), "accept-new-data", "a new run accepts any data; give --resume too, or leave out the flag"},
      {!reads_text(training), "dropout sample tie-head",
       "only --model gpt has it; use that model, or leave out the flag"},
      {is_remote, "tie-head",
       "with --form remote each worker updates its own stage, and none has both weights; leave out the flag, or use "
       "another --form"},
      {pipeline.versions.value_or(Versions::flush) != Versions::flush, "tie-head",
       "an asynchronous pipeline updates the first and the last stage at different times, so their weights would not "
       "be the same; leave out the flag, or use --versions flush"},
      {!pipeline.replicas.empty() || pipeline.balance == Balance::pipedream, "tie-head",
       "a stage with replicas would exchange its tied weights with each of them; leave out the flag, or give a stage "
       "one rank"},
      {training.class_parallel, "tie-head",
       "with --class-parallel the head is cut by classes, and the embedding is not; leave out one of them"},
      {s.run.explain, "sample", "--explain trains nothing that could write; leave out one of them"},
      {tensor_ranks == 1 || training.sequence_parallel, "overlap",
       "only the sums of tensor parallelism without --sequence-parallel are overlapped; leave out one of them"},
      {training.model != "vit" || training.tensor_slices == 1, "sequence-parallel",
       "only the tokens of --model vit can be shared, by two or more slices of its layers; leave out the flag"},
      {training.tensor_slices == 1, "class-parallel",
       "only two or more slices can share the classes; give --tensor-slices 2, or in chapter 8 --mesh tp=2"},
  };
}

/// Throws UsageError if the data are not what the model takes.
void require_fitting_data(const Settings& s) {
  const TrainingSettings& training = s.training;
  const bool takes_text = reads_text(training);
  refuse_if(takes_text != is_text(s.data.source), "--data {}: --model {} takes {}; give --data {}, or use {}",
            s.data.source, training.model, takes_text ? "text" : "images",
            takes_text ? "text:book or text:FILE" : "generated or a folder of images",
            takes_text ? "another --model" : "--model gpt");
  refuse_if(takes_text && (training.augment || training.image_size != 0),
            "--{}: --model gpt takes text, not images; leave out the flag",
            training.augment ? "augment" : "image-size");
}

/// Throws UsageError for a flag that would change nothing, and does not say what would be done anyway.
void require_effect(const Settings& s, const Chapter& chapter) {
  for (const auto& [are_idle, names, why] : idle_flags(s, chapter)) {
    for (const std::string_view name : split_text(names, ' ')) {
      const FlagValue& value = flag_named(name).value;
      const bool says_more = value.text(s) != value.text(Settings{}) && value.text(s) != value.text(chapter.defaults);
      refuse_if(are_idle && says_more, "--{}: {}", name, why);
    }
  }
}

/// Throws UsageError for contradictory settings of a pipeline.
void require_consistent_pipeline(const Settings& s) {
  const PipelineSettings& pipeline = s.pipeline;
  const std::string versions = name_of(pipeline.versions);
  const int replicas = std::accumulate(pipeline.replicas->begin(), pipeline.replicas->end(), 0);
  refuse_if(!pipeline.replicas.empty() && replicas != s.world.ranks,
            "--replicas {0}: expected replicas for {2}, got {1}; give --ranks {1}, or leave out --replicas",
            pipeline.replicas.text(), replicas, counted(s.world.ranks, "rank"));
  refuse_if(!pipeline.version_check && pipeline.versions != Versions::none,
            "--no-version-check with --versions {}: this policy keeps the weights that backwards need, so the check "
            "always passes; leave out --no-version-check, or use --versions none",
            versions);
  refuse_if(pipeline.versions && pipeline.versions != Versions::flush && is_by_hand(pipeline),
            "--schedule by-hand with --versions {}: the hand-written loop flushes the pipeline before each update; "
            "give --versions flush, or leave out --schedule",
            versions);
  if (pipeline.form == ControllerForm::remote) {
    refuse_if(!s.run.out.empty() && pipeline.splits->size() != 1,
              "--splits {}: --out takes the files of one training, got {}; give one number, such as --splits 4",
              pipeline.splits.text(), pipeline.splits->size());
    const int most = *std::max_element(pipeline.splits->begin(), pipeline.splits->end());
    refuse_if(most > s.training.batch_size,
              "--splits: a batch of {0} images has at most {0} micro-batches, got {1}; use a larger --batch-size",
              s.training.batch_size, most);
    refuse_if(s.world.ranks < 2, "--ranks: --form remote needs a master and at least one worker; give 2 or more");
  }
}

/// Throws UsageError for contradictory settings of the directions of a mesh.
void require_consistent_mesh(const Settings& s, const Chapter& chapter) {
  const ReplicaSettings& replicas = s.data_parallel;
  const MeshSizes mesh = mesh_of(s);
  if (!shares_batches(s)) {
    return;
  }
  refuse_if(mesh.ranks() != s.world.ranks,
            "--mesh {0}: expected a mesh of {2}, got {1}; give --ranks {1}, or leave out --ranks", replicas.mesh.text(),
            mesh.ranks(), counted(s.world.ranks, "rank"));
  refuse_if(!replicas.shard && mesh.shard > 1,
            "--mesh {}: this chapter has no shards; give dp{}, or use chapter 9 (ch09_sharded_data_parallel)",
            replicas.mesh.text(), chapter.number == 6 ? " and pp" : ", pp and tp");
  refuse_if(replicas.shard && mesh.pipeline * mesh.tensor > 1,
            "--mesh {}: this chapter has no pipelines and cuts no layers; give dp and shard, or use chapter 8 "
            "(ch08_tensor_parallel)",
            replicas.mesh.text());
  refuse_if(replicas.shard && replicas.by_hand && mesh.data > 1,
            "--mesh {}: --by-hand has one copy of the weights; give --ranks {}, or leave out --by-hand",
            replicas.mesh.text(), mesh.ranks());
  refuse_if(chapter.number == 6 && mesh.tensor > 1,
            "--mesh: layers are whole in this chapter; give dp and pp only, or use chapter 8 (ch08_tensor_parallel)");
  refuse_if(mesh.tensor != 1 && mesh.tensor != s.training.tensor_slices,
            "--mesh {0}: expected 1 or {1} tensor-parallel ranks for --tensor-slices {1}, got {2}",
            replicas.mesh.text(), s.training.tensor_slices, mesh.tensor);
  const bool is_native = s.world.reduce == ReduceKind::native;
  refuse_if(is_native && replicas.mode && s.world.transport == Transport::thread,
            "--reduce native: ranks that are threads have no native all-reduce; leave out the flag, or start processes "
            "(mpirun -np 2)");
  refuse_if(is_native && replicas.mode == DataParallelMode::central,
            "--reduce native: --mode central has no all-reduce; leave out the flag, or use --mode buckets");
  refuse_if(replicas.mode && replicas.mode != DataParallelMode::buckets && mesh.pipeline > 1,
            "--mesh: a mesh with pipelines reduces gradients in buckets, not with --mode {}; use --mode buckets",
            name_of(replicas.mode));
  refuse_if(replicas.sync_batch_norm && s.training.microbatches > 1,
            "--sync-batch-norm: all ranks need the same number of micro-batches, but a rank with fewer images has "
            "fewer micro-batches; give --microbatches 1");
}

void require_known_schedule(const PipelineSettings& pipeline, const Chapter& chapter) {
  const std::vector<std::string>& known = chapter.schedules;
  const std::string& schedule = pipeline.schedule;
  const bool is_known = std::find(known.begin(), known.end(), schedule) != known.end();
  const bool takes_files = !pipeline.versions;  // a file holds one batch
  std::error_code unreadable;                   // such as a name that is too long
  const bool is_file = takes_files && std::filesystem::is_regular_file(schedule, unreadable);
  refuse_if(!known.empty() && !schedule.empty() && !is_known && !is_file,
            "--schedule {}: unknown schedule: expected one of {}{} for {}", schedule, fmt::join(known, ", "),
            takes_files ? ", or a file with a table of actions," : "", chapter.program);
}

/// Returns whether a chapter trains on several devices.
bool has_ranks(const Chapter& chapter) { return flag_named("ranks").is_offered_by(chapter.number); }

}  // namespace

void follow_launcher(WorldSettings& world, const Chapter& chapter, const WasGiven& was_given) {
  const std::optional<LaunchEnvironment>& process = launch_environment();
  if (!process) {
    world.transport = was_given("transport") ? world.transport : Transport::thread;
    return;
  }
  refuse_if(process->size > kMaxDevices,
            "{0} started too many processes: expected at most {2} ({3}), got {1}; start fewer", process->by,
            process->size, kMaxDevices, process->size_variable);
  if (!has_ranks(chapter)) {
    refuse_if(process->size > 1, "{0} trains on one device, but {1} started {2} processes; start {0} without {1}",
              chapter.program, process->by, process->size);
    return;
  }
  if (was_given("transport") && world.transport == Transport::thread) {
    refuse_if(process->size > 1,
              "--transport thread: {} started {} processes, which would each train separately; leave out --transport, "
              "or start a single process",
              process->by, process->size);
    return;
  }
  // A single srun task may be an interactive shell: as without a launcher, ranks are threads.
  if (process->by == "srun" && process->size == 1 && !was_given("transport")) {
    world.transport = Transport::thread;
    return;
  }
  refuse_if(
      was_given("ranks") && world.ranks != process->size,
      "--ranks {0}: expected one process per rank, but {1} started {2}; start {3} processes, or leave out --ranks",
      world.ranks, process->by, process->size, world.ranks);
  world.ranks = process->size;
  world.transport = was_given("transport") ? world.transport : Transport::mpi;
}

void choose_transport(WorldSettings& world, const WasGiven& was_given) {
  const bool on_gpus = world.device->type == DeviceType::cuda;
  const bool by_torchrun = launch_environment() && launch_environment()->by == "torchrun";
  refuse_if(world.transport == Transport::nccl && !on_gpus,
            "--transport nccl with --device {}: NCCL sends tensors between GPUs only; give --device cuda, or another "
            "--transport",
            world.device.text());
  if (world.transport == Transport::mpi && !was_given("transport") && on_gpus && (by_torchrun || nccl::is_built_in())) {
    world.transport = Transport::nccl;
  }
  if (world.transport == Transport::mpi && !was_given("transport") && by_torchrun) {
    // A single rank sends no messages.
    world.transport = launch_environment()->size == 1 ? Transport::thread : Transport::gloo;
  }
  refuse_if(world.transport == Transport::mpi && by_torchrun,
            "--transport mpi: MPI does not know the processes that torchrun starts; leave out --transport, or use "
            "mpirun -np N instead of torchrun");
  refuse_if(world.transport == Transport::gloo && on_gpus,
            "--transport gloo with --device {}: Gloo sends tensors between CPUs only; give --device cpu, or another "
            "--transport",
            world.device.text());
  refuse_if(
      world.transport == Transport::gloo && !gloo_ranks::is_built_in() && by_torchrun,
      "torchrun started {} processes, and this build has no Gloo to connect them; run scripts/setup.sh --for-gloo "
      "and build again, or use mpirun -np {} instead of torchrun",
      world.ranks, world.ranks);
  // Processes of NCCL and Gloo find each other at MASTER_ADDR, or through MPI. Missing support is reported before
  // anything starts.
  const bool needs_master = world.transport == Transport::nccl || world.transport == Transport::gloo;
  const bool meets_by_mpi =
      world.transport == Transport::mpi || (needs_master && launch_environment() && !master(*launch_environment()));
  refuse_if(meets_by_mpi && launch_environment() && !launch_environment()->has_pmix && mpi::needs_pmix() &&
                !was_given("transport"),
            "srun started {} processes, but Open MPI cannot connect them without PMIx; use srun --mpi=pmix (srun "
            "--mpi=list shows whether it is available), use mpirun in the job, or give --transport {} to try anyway",
            world.ranks, name_of(world.transport));
}

void require_consistent(const Chapter& chapter, const Settings& s) {
  const TrainingSettings& training = s.training;
  const WorldSettings& world = s.world;
  require_sizes(training.model, sizes_of(training));
  require_fitting_data(s);
  require_effect(s, chapter);
  require_consistent_pipeline(s);
  require_consistent_mesh(s, chapter);
  require_known_schedule(s.pipeline, chapter);
  refuse_if(training.microbatches > training.batch_size,
            "--microbatches {0}: a batch of {1} images has at most {1} micro-batches; use {1} or fewer, or a larger "
            "--batch-size",
            training.microbatches, training.batch_size);
  refuse_if(
      training.microbatches % training.sum_groups != 0,
      "--sum-groups {}: expected groups of equally many micro-batches, got {} micro-batches; give --microbatches {}",
      training.sum_groups, training.microbatches,
      (training.microbatches / training.sum_groups + 1) * training.sum_groups);
  refuse_if(training.optimizer != OptimizerKind::sgd && training.momentum != 0,
            "--momentum {}: --optimizer {} has no momentum setting; leave out --momentum", training.momentum,
            name_of(training.optimizer));
  const bool is_one_program = chapter.number == 7 && s.pipeline.form != ControllerForm::remote;
  refuse_if(
      is_one_program && world.clock == ClockKind::virtual_time,
      "--clock virtual: the devices of one program share the real clock; use --clock modelled, leave out --clock, "
      "or use --form remote or a chapter with ranks");
  refuse_if(is_one_program && world.transport != Transport::thread,
            "--form {} is one program; start it without mpirun or another launcher", name_of(s.pipeline.form));
  refuse_if(world.clock == ClockKind::modelled && world.device->type == DeviceType::cuda,
            "--clock modelled with --device {}: times are computed for --device-model, and the arithmetic runs on the "
            "CPU; leave out --device",
            world.device.text());
  refuse_if(world.clock == ClockKind::virtual_time && world.threads > 1 && world.device->type == DeviceType::cpu,
            "--threads {} with --clock virtual: that clock counts the time of one core per rank; leave out --threads",
            world.threads);
  refuse_if(!s.run.explain && world.ranks > kMaxDevices,
            "--ranks {}: at most {} ranks can train here; give fewer, or --explain for a plan", world.ranks,
            kMaxDevices);
  refuse_if(
      has_ranks(chapter) && world.device.text().find(':') != std::string::npos,
      "--device {}: expected cpu or cuda, from which {} ranks take their devices round-robin, got a single device",
      world.device.text(), world.ranks);
}

}  // namespace stagecoach
