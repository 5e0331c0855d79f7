#include "chapters/common/flag_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <system_error>
#include <utility>

#include "chapters/common/open.h"
#include "chapters/common/plan.h"
#include "core/base/phrases.h"
#include "core/base/throw_if.h"
#include "core/device.h"
#include "nn/models.h"
#include "parallel/launch/gloo.h"
#include "parallel/launch/launch_environment.h"
#include "parallel/launch/mpi.h"
#include "parallel/launch/nccl.h"
#include "parallel/schedule/pipedream.h"
#include "parallel/schedule/schedule_kinds.h"

namespace stagecoach {

void fill_in_defaults(Settings& s, const WasGiven& was_given) {
  if (s.data.smoke) {
    s.data.source = "generated";
  }
  if (s.world.clock == ClockKind::modelled) {
    s.run.profile = s.run.profile || s.run.explain;  // times that are computed cost nothing
  }
  if (s.training.lr == 0) {
    s.training.lr = s.training.optimizer == OptimizerKind::adam ? 0.001 : 0.01;
  }
  if (s.training.momentum < 0) {
    s.training.momentum = s.training.optimizer == OptimizerKind::sgd ? 0.9 : 0;
  }
  if (s.pipeline.chunks == 0) {
    const ScheduleKind* kind = find_schedule(s.pipeline.schedule);  // null: a file, or a chapter's own loop
    s.pipeline.chunks = kind == nullptr ? 1 : std::clamp(2, kind->min_chunks, kind->max_chunks);
  }
  const bool has_pipeline = !s.data_parallel.mode || s.data_parallel.mesh->pipeline > 1;
  if (!has_pipeline && !was_given("schedule")) {
    s.pipeline.schedule.clear();
  }
  if (!s.data_parallel.mesh.empty() && !was_given("ranks")) {
    s.world.ranks = s.data_parallel.mesh->ranks();
  }
  if (s.data_parallel.mesh->tensor > 1 && s.training.tensor_slices == 1) {
    s.training.tensor_slices = s.data_parallel.mesh->tensor;
  }
  if (!s.pipeline.replicas.empty() && !was_given("ranks")) {
    s.world.ranks = std::accumulate(s.pipeline.replicas->begin(), s.pipeline.replicas->end(), 0);
  }
  const std::optional<Versions> versions = s.pipeline.versions;
  if ((versions == Versions::two_buffers || versions == Versions::flush) && !was_given("microbatches") &&
      s.run.resume.empty()) {
    const int least = min_batch(replicas_of(s), *versions);
    s.training.microbatches = ceil_div(s.world.ranks, least) * least;  // one per rank, or the next valid number
  }
  if (s.run.explain && !s.pipeline.profile_file.empty() && s.chapter != 7) {
    s.run.profile = true;  // in seconds. In chapter 7 that would run a step.
  }
  if (s.pipeline.form != ControllerForm::pipelined && !was_given("microbatches")) {
    s.training.microbatches = 1;
  }
  if (s.pipeline.form == ControllerForm::remote && s.world.transport == Transport::thread && !was_given("ranks")) {
    s.world.ranks = 3;  // a master and two workers
  }
  if (!was_given("microbatches")) {
    s.training.microbatches = std::min(s.training.microbatches, s.training.batch_size);
  }
  if (s.training.image_size == 0) {
    s.training.image_size = default_image_size(s.training.model);
  }
  const ModelSizes sizes = default_sizes(s.training.model);
  for (const auto& [size, fallback] : {std::pair(&s.training.depth, sizes.depth),
                                       {&s.training.width, sizes.width},
                                       {&s.training.heads, sizes.heads}}) {
    *size = *size == 0 ? fallback : *size;
  }
}

namespace {

/// Throws UsageError if `is_wrong`. The other arguments are a fmt format string and its values.
template <class... Values>
void refuse_if(bool is_wrong, fmt::format_string<Values...> text, Values&&... values) {
  throw_if<UsageError>(is_wrong, text, std::forward<Values>(values)...);
}

/// Throws UsageError for contradictory settings of an asynchronous pipeline.
void require_consistent_versions(const PipelineSettings& pipeline, int ranks, bool is_resumed) {
  const int sum = std::accumulate(pipeline.replicas->begin(), pipeline.replicas->end(), 0);
  refuse_if(!pipeline.replicas.empty() && sum != ranks,
            "--replicas {0}: expected replicas for {2}, got {1}; give --ranks {1}, or leave out --replicas",
            pipeline.replicas.text(), sum, counted(ranks, "rank"));
  refuse_if(
      pipeline.balance == Balance::pipedream && !is_resumed && (!pipeline.replicas.empty() || !pipeline.split.empty()),
      "--balance pipedream chooses the split and the replicas itself; leave out --split and --replicas");
  refuse_if(!pipeline.version_check && pipeline.versions != Versions::none,
            "--no-version-check with --versions {}: this policy keeps the weights that backwards need, so the check "
            "always passes; leave out --no-version-check, or use --versions none",
            name_of(pipeline.versions));
  refuse_if(is_by_hand(pipeline) && pipeline.versions != Versions::flush,
            "--schedule by-hand with --versions {}: the hand-written loop flushes the pipeline before each update; "
            "give --versions flush, or leave out --schedule",
            name_of(pipeline.versions));
  refuse_if(pipeline.recompute && pipeline.versions == Versions::none,
            "--recompute with --versions none: the forward would run again with newer weights, which the version check "
            "cannot detect; leave out --recompute");
}

/// Throws UsageError for settings that a master with workers does not have.
void require_consistent_remote(const Settings& s) {
  refuse_if(s.training.microbatches > 1, "--microbatches: --form remote takes its micro-batches from --splits");
  refuse_if(!s.run.out.empty() && s.pipeline.splits->size() != 1,
            "--splits {}: --out takes the files of one training, got {}; give one number, such as --splits 4",
            s.pipeline.splits.text(), s.pipeline.splits->size());
  refuse_if(s.run.explain, "--explain: --form remote has no schedule to show; leave out the flag");
  refuse_if(s.run.profile, "--profile: --form remote records no trace; leave out the flag");
  const int most = *std::max_element(s.pipeline.splits->begin(), s.pipeline.splits->end());
  refuse_if(most > s.training.batch_size,
            "--splits: a batch of {0} images has at most {0} micro-batches, got {1}; use a larger --batch-size",
            s.training.batch_size, most);
  refuse_if(s.world.ranks < 2, "--ranks: --form remote needs a master and at least one worker; give 2 or more");
}

/// Throws UsageError for settings that only pipelines have.
void require_no_pipeline_flags(const PipelineSettings& pipeline, const RunSettings& run) {
  const std::string no_pipeline =
      "this run has no pipeline; leave out the flag, or give a mesh with pipelines, such as --mesh dp=2,pp=2";
  refuse_if(!pipeline.split.empty(), "--split: {}", no_pipeline);
  refuse_if(pipeline.recompute, "--recompute: {}", no_pipeline);
  refuse_if(!pipeline.schedule.empty(), "--schedule: {}", no_pipeline);
  refuse_if(pipeline.chunks != 1, "--chunks: {}", no_pipeline);
  refuse_if(pipeline.group != 0, "--group: {}", no_pipeline);
  refuse_if(*pipeline.receives != kDefaultReceives, "--receives: {}", no_pipeline);
  refuse_if(run.lowered, "--lowered: {}", no_pipeline);
  refuse_if(run.table_format != TableFormat::stagecoach, "--table-format: {}", no_pipeline);
  refuse_if(pipeline.balance != Balance::time, "--balance: {}", no_pipeline);
  refuse_if(!pipeline.profile_file.empty(), "--profile-file: {}", no_pipeline);
}

/// Throws UsageError for settings that only gradients in buckets have.
void require_no_bucket_flags(const ReplicaSettings& sharing) {
  const std::string mode = name_of(sharing.mode);
  const std::string no_buckets =
      fmt::format("--mode {} has no buckets; leave out the flag, or use --mode buckets", mode);
  refuse_if(sharing.find_unused, "--find-unused: {}", no_buckets);
  refuse_if(sharing.compress != CompressionKind::none, "--compress: {}", no_buckets);
  refuse_if(sharing.bucket_size != BucketCaps{}.rest, "--bucket-size: {}", no_buckets);
  refuse_if(sharing.first_bucket_size != BucketCaps{}.first, "--first-bucket-size: {}", no_buckets);
  refuse_if(sharing.mesh->pipeline > 1,
            "--mesh: a mesh with pipelines reduces gradients in buckets, not with --mode {}; use --mode buckets", mode);
}

/// Throws UsageError unless the mesh has as many ranks as the run.
void require_mesh_of_all_ranks(const Settings& s, const MeshSizes& mesh) {
  refuse_if(mesh.ranks() != s.world.ranks,
            "--mesh {0}: expected a mesh of {2}, got {1}; give --ranks {1}, or leave out --ranks",
            s.data_parallel.mesh.text(), mesh.ranks(), counted(s.world.ranks, "rank"));
}

/// Throws UsageError for contradictory settings of ranks that share batches.
void require_consistent_sharing(const Settings& s) {
  const ReplicaSettings& sharing = s.data_parallel;
  const MeshSizes mesh = mesh_of(s);
  require_mesh_of_all_ranks(s, mesh);
  const bool is_native = s.world.reduce == ReduceKind::native;
  refuse_if(is_native && s.world.transport == Transport::thread,
            "--reduce native: ranks that are threads have no native all-reduce; leave out the flag, or start processes "
            "(mpirun -np 2)");
  refuse_if(is_native && sharing.mode == DataParallelMode::central,
            "--reduce native: --mode {} has no all-reduce; leave out the flag, or use --mode buckets",
            name_of(sharing.mode));
  if (sharing.mode != DataParallelMode::buckets) {
    require_no_bucket_flags(sharing);
  }
  if (mesh.pipeline == 1) {
    require_no_pipeline_flags(s.pipeline, s.run);
  }
  refuse_if(mesh.pipeline > 1 && sharing.find_unused,
            "--find-unused: a stage uses all of its parameters; leave out the flag");
  refuse_if(sharing.sync_batch_norm && s.training.microbatches > 1,
            "--sync-batch-norm: all ranks need the same number of micro-batches, but a rank with fewer images has "
            "fewer micro-batches; give --microbatches 1");
}

/// Throws UsageError for contradictory settings of layers that are cut, or of the ranks of a mesh.
void require_consistent_slices(const Settings& s, const Chapter& chapter) {
  const MeshSizes& mesh = *s.data_parallel.mesh;
  if (chapter.number == 6) {
    refuse_if(mesh.tensor > 1,
              "--mesh: layers are whole in this chapter; give dp and pp only, or use chapter 8 (ch08_tensor_parallel)");
  }
  if (chapter.number == 8) {
    require_mesh_of_all_ranks(s, mesh);
    refuse_if(mesh.tensor != 1 && mesh.tensor != s.training.tensor_slices,
              "--mesh {0}: expected 1 or {1} tensor-parallel ranks for --tensor-slices {1}, got {2}",
              s.data_parallel.mesh.text(), s.training.tensor_slices, mesh.tensor);
  }
  refuse_if(s.data_parallel.overlap && (mesh.tensor == 1 || s.training.sequence_parallel),
            "--overlap: only the sums of tensor parallelism without --sequence-parallel are overlapped; leave out one "
            "of them");
  refuse_if(s.training.sequence_parallel && (s.training.model != "vit" || s.training.tensor_slices == 1),
            "--sequence-parallel: only the tokens of --model vit can be shared, by two or more slices of its layers");
  refuse_if(s.training.class_parallel && s.training.tensor_slices == 1,
            "--class-parallel: only two or more slices can share the classes; give --tensor-slices 2, or in chapter 8 "
            "--mesh tp=2");
}

void require_consistent_schedule(const PipelineSettings& pipeline, const Chapter& chapter) {
  const std::vector<std::string>& known = chapter.schedules;
  const std::string& schedule = pipeline.schedule;
  if (is_by_hand(pipeline) && *pipeline.receives != kDefaultReceives) {
    throw UsageError(
        fmt::format("--receives {}: the hand-written loop posts each receive where the tensor is used; use --schedule "
                    "{}, or leave out --receives",
                    pipeline.receives.text(), known.front()));
  }
  const bool is_known = std::find(known.begin(), known.end(), schedule) != known.end();
  const bool takes_files = !pipeline.versions;  // a file holds one batch
  std::error_code unreadable;                   // such as a name that is too long
  const bool is_file = takes_files && std::filesystem::is_regular_file(schedule, unreadable);
  refuse_if(!known.empty() && !schedule.empty() && !is_known && !is_file,
            "--schedule {}: unknown schedule: expected one of {}{} for {}", schedule, fmt::join(known, ", "),
            takes_files ? ", or a file with a table of actions," : "", chapter.program);
}

/// Returns whether a chapter trains on several devices.
bool has_ranks(const Chapter& chapter) {
  const std::vector<Flag>& flags = flag_table();
  const auto ranks = std::find_if(flags.begin(), flags.end(), [](const Flag& flag) { return flag.name == "ranks"; });
  return ranks->is_offered_by(chapter.number);
}

void require_consistent_world(const WorldSettings& world, const Chapter& chapter, bool explains) {
  refuse_if(world.clock == ClockKind::wall && *world.link != Network(),
            "--link {0} with --clock wall: the wall clock measures the real time of messages; use --clock virtual or "
            "--clock modelled, or leave out --link",
            world.link.text());
  refuse_if(world.clock != ClockKind::modelled && world.modelled_device.text() != kDefaultDeviceModel,
            "--device-model {0} with --clock {1}: that clock measures the device that the program runs on; use --clock "
            "modelled, or leave out --device-model",
            world.modelled_device.text(), name_of(world.clock));
  refuse_if(world.clock == ClockKind::modelled && world.device->type == DeviceType::cuda,
            "--clock modelled with --device {0}: times are computed for --device-model, and the arithmetic runs on the "
            "CPU; leave out --device",
            world.device.text());
  refuse_if(
      world.clock == ClockKind::virtual_time && world.threads > 1 && world.device->type == DeviceType::cpu,
      "--threads {} with --clock virtual: the virtual clock counts the time of one core per rank; leave out --threads",
      world.threads);
  refuse_if(!explains && world.ranks > kMaxDevices,
            "--ranks {}: at most {} ranks can train here; give fewer, or --explain for a plan", world.ranks,
            kMaxDevices);
  const bool names_one_device = world.device.text().find(':') != std::string::npos;
  refuse_if(
      has_ranks(chapter) && names_one_device,
      "--device {}: expected cpu or cuda, from which {} ranks take their devices round-robin, got a single device",
      world.device.text(), world.ranks);
}

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
  require_sizes(s.training.model, sizes_of(s.training));
  if (s.pipeline.versions) {
    require_consistent_versions(s.pipeline, s.world.ranks, !s.run.resume.empty());
  }
  if (s.data_parallel.mode) {
    require_consistent_sharing(s);
  }
  require_consistent_slices(s, chapter);
  const TrainingSettings& training = s.training;
  refuse_if(
      training.microbatches > training.batch_size,
      "--microbatches {}: a batch of {} images has at most {} micro-batches; use {} or fewer, or a larger --batch-size",
      training.microbatches, training.batch_size, training.batch_size, training.batch_size);
  refuse_if(training.optimizer == OptimizerKind::adam && training.momentum != 0,
            "--momentum {}: --optimizer adam has no momentum setting; leave out --momentum", training.momentum);
  const bool has_stages =
      !s.pipeline.split.empty() || s.pipeline.balance == Balance::layers || s.pipeline.balance == Balance::params;
  refuse_if(has_stages && !s.run.explain && !s.pipeline.profile_file.empty(),
            "--profile-file: only --explain and a split by time use it, but this run's stages are given (--split or "
            "--balance, now or in the run to resume); leave out the flag");
  refuse_if(s.run.lowered && !s.run.explain,
            "--lowered without --explain: it only extends the output of --explain; give --explain too, or leave out "
            "--lowered");
  refuse_if(
      s.run.table_format != TableFormat::stagecoach && (!s.run.explain || s.run.out.empty()),
      "--table-format {}: only --explain --out writes tables; give --explain and --out DIR, or leave out the flag",
      name_of(s.run.table_format));
  refuse_if(s.run.accept_new_data && s.run.resume.empty(),
            "--accept-new-data without --resume: a new run accepts any data; give --resume too, or leave out the flag");
  refuse_if(s.run.summary && s.run.explain,
            "--summary with --explain: nothing is trained, so there is nothing to sum up; leave out one of them");
  refuse_if(
      s.pipeline.form == ControllerForm::naive && training.microbatches > 1,
      "--microbatches {}: --form naive does not divide its batches; leave out --microbatches, or use --form pipelined",
      training.microbatches);
  if (s.pipeline.form == ControllerForm::remote) {
    require_consistent_remote(s);
  } else {
    refuse_if(chapter.number == 7 && s.world.clock != ClockKind::wall,
              "--clock {}: the devices of one program share the real clock; leave out --clock, or use --form remote "
              "or a chapter with ranks",
              name_of(s.world.clock));
    refuse_if(chapter.number == 7 && *s.world.link != Network(),
              "--link {}: --form {} sends no messages; leave out --link, or use --form remote", s.world.link.text(),
              name_of(s.pipeline.form));
    refuse_if(chapter.number == 7 && s.world.transport != Transport::thread,
              "--form {} is one program; start it without mpirun or another launcher", name_of(s.pipeline.form));
    refuse_if(chapter.number == 7 && s.world.timeout != WorldSettings{}.timeout,
              "--timeout: only --form remote has ranks that wait for each other; leave out the flag");
  }
  require_consistent_schedule(s.pipeline, chapter);
  require_consistent_world(s.world, chapter, s.run.explain);
}

}  // namespace stagecoach
