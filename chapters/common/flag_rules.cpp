#include "chapters/common/flag_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "core/device.h"
#include "core/error.h"
#include "nn/models.h"
#include "parallel/launch/launch_environment.h"
#include "parallel/launch/mesh.h"
#include "parallel/launch/nccl.h"
#include "parallel/pipeline/split.h"
#include "parallel/schedule/pipedream.h"
#include "parallel/schedule/schedule_kinds.h"

namespace stagecoach {

void fill_in_defaults(Settings& s, const WasGiven& was_given) {
  if (s.data.smoke) {
    s.data.source = "generated";
  }
  if (s.training.lr == 0) {
    s.training.lr = s.training.optimizer == "adam" ? 0.001 : 0.01;
  }
  if (s.training.momentum < 0) {
    s.training.momentum = s.training.optimizer == "sgd" ? 0.9 : 0;
  }
  if (s.pipeline.chunks == 0) {
    const ScheduleKind* kind = find_schedule(s.pipeline.schedule);  // none: a file, or a chapter's own loop
    s.pipeline.chunks = kind == nullptr ? 1 : std::clamp(2, kind->least_chunks, kind->most_chunks);
  }
  const bool has_pipeline = s.data_parallel.mode.empty() ||
                            (!s.data_parallel.mesh.empty() && mesh_from_text(s.data_parallel.mesh).pipeline > 1);
  if (!has_pipeline && !was_given("schedule")) {
    s.pipeline.schedule.clear();
  }
  if (!s.data_parallel.mesh.empty() && !was_given("ranks")) {
    s.world.ranks = mesh_from_text(s.data_parallel.mesh).ranks();
  }
  if (!s.pipeline.replicas.empty() && !was_given("ranks")) {
    const std::vector<int> replicas = replicas_from_text(s.pipeline.replicas);
    s.world.ranks = std::accumulate(replicas.begin(), replicas.end(), 0);
  }
  if ((s.pipeline.versions == "2bw" || s.pipeline.versions == "flush") && !was_given("microbatches") &&
      s.run.resume.empty()) {
    const std::vector<int> replicas = s.pipeline.replicas.empty()
                                          ? std::vector<int>(static_cast<std::size_t>(s.world.ranks), 1)
                                          : replicas_from_text(s.pipeline.replicas);
    const int least = least_batch(replicas, versions_from_text(s.pipeline.versions));
    s.training.microbatches = ceil_div(s.world.ranks, least) * least;  // one a rank, or the next number that can be
  }
  if (!s.pipeline.plan.empty() && !was_given("balance") && !was_given("split") && !was_given("replicas")) {
    s.pipeline.balance = "plan";
  }
  if (!was_given("microbatches")) {
    s.training.microbatches = std::min(s.training.microbatches, s.training.batch_size);
  }
  if (s.training.image_size == 0) {
    s.training.image_size = default_image_size(s.training.model);
  }
}

namespace {

/// What an asynchronous pipeline is asked for.
void require_consistent_versions(const Settings& s) {
  const std::vector<int> replicas =
      s.pipeline.replicas.empty() ? std::vector<int>{} : replicas_from_text(s.pipeline.replicas);
  const int sum = std::accumulate(replicas.begin(), replicas.end(), 0);
  if (!replicas.empty() && sum != s.world.ranks) {
    throw UsageError(fmt::format("--replicas {} is for {} ranks, the run has {}; give --ranks {}, or leave it out",
                                 s.pipeline.replicas, sum, s.world.ranks, sum));
  }
  if (s.pipeline.balance == "pipedream" && s.run.resume.empty() &&
      (!s.pipeline.replicas.empty() || !s.pipeline.split.empty())) {
    throw UsageError("--balance pipedream chooses the split and the replicas itself; leave out --split and --replicas");
  }
  if (s.pipeline.balance == "plan" && s.run.resume.empty() && s.pipeline.plan.empty()) {
    throw UsageError("--balance plan takes the stages out of a file; give --plan FILE");
  }
  if (!s.run.resume.empty() && !s.pipeline.plan.empty()) {
    throw UsageError("--plan with --resume: a resumed run goes on with the stages that it had; leave --plan out");
  }
  if (!s.pipeline.version_check && s.pipeline.versions != "none") {
    throw UsageError(fmt::format(
        "--no-version-check with --versions {}: this policy keeps the weights that backwards need; the check is in the "
        "way of --versions none only",
        s.pipeline.versions));
  }
  if (s.pipeline.schedule == "by-hand" && s.pipeline.versions != "flush") {
    throw UsageError(
        fmt::format("--schedule by-hand with --versions {}: the loop by hand flushes the pipeline before each update; "
                    "give --versions flush, or leave --schedule out",
                    s.pipeline.versions));
  }
  if (s.pipeline.schedule == "by-hand" && s.pipeline.versions != "flush") {
    throw UsageError(
        fmt::format("--schedule by-hand with --versions {}: the loop by hand flushes the pipeline before each update; "
                    "give --versions flush, or leave --schedule out",
                    s.pipeline.versions));
  }
  if (s.pipeline.recompute && s.pipeline.versions == "none") {
    throw UsageError(
        "--recompute with --versions none: the forward would run again with the new weights, which the version check "
        "cannot see; leave --recompute out");
  }
}

/// What ranks that share batches are asked for.
void require_consistent_sharing(const Settings& s) {
  const MeshSizes mesh =
      s.data_parallel.mesh.empty() ? MeshSizes{.data = s.world.ranks} : mesh_from_text(s.data_parallel.mesh);
  if (mesh.ranks() != s.world.ranks) {
    throw UsageError(fmt::format("--mesh {} is for {} ranks, the run has {}; give --ranks {}, or leave it out",
                                 s.data_parallel.mesh, mesh.ranks(), s.world.ranks, mesh.ranks()));
  }
  const auto refuse = [&](bool wrong, const char* flag, const std::string& why) {
    if (wrong) {
      throw UsageError(fmt::format("--{}: {}", flag, why));
    }
  };
  refuse(s.world.reduce == "native" && s.world.transport == "thread", "reduce native",
         "ranks that are threads add up by themselves, in order; leave it out, or start processes (mpirun -np 2)");
  const bool buckets = s.data_parallel.mode == "buckets";
  refuse(s.world.reduce == "native" && (s.data_parallel.mode == "central" || s.data_parallel.mode == "replicate"),
         "reduce native", fmt::format("--mode {} has no all-reduce; take --mode buckets", s.data_parallel.mode));
  const std::string only_buckets = fmt::format("--mode {} has no buckets; take --mode buckets", s.data_parallel.mode);
  refuse(!buckets && s.data_parallel.find_unused, "find-unused", only_buckets);
  refuse(!buckets && s.data_parallel.compress != "none", "compress", only_buckets);
  refuse(!buckets && s.data_parallel.bucket_size != BucketCaps{}.rest, "bucket-size", only_buckets);
  refuse(!buckets && s.data_parallel.first_bucket_size != BucketCaps{}.first, "first-bucket-size", only_buckets);
  refuse(!buckets && mesh.pipeline > 1, "mesh",
         fmt::format("pipelines reduce in buckets, not by --mode {}", s.data_parallel.mode));
  const std::string no_pipeline = "here no pipeline is cut; --mesh dp=2,pp=2 has some";
  refuse(mesh.pipeline == 1 && !s.pipeline.split.empty(), "split", no_pipeline);
  refuse(mesh.pipeline == 1 && s.pipeline.recompute, "recompute", no_pipeline);
  refuse(mesh.pipeline == 1 && !s.pipeline.schedule.empty(), "schedule", no_pipeline);
  refuse(mesh.pipeline == 1 && s.pipeline.chunks != 1, "chunks", no_pipeline);
  refuse(mesh.pipeline == 1 && s.pipeline.group != 0, "group", no_pipeline);
  refuse(mesh.pipeline == 1 && s.pipeline.receives != "ahead", "receives", no_pipeline);
  refuse(mesh.pipeline == 1 && s.run.lowered, "lowered", no_pipeline);
  refuse(mesh.pipeline == 1 && s.pipeline.balance != "time", "balance", no_pipeline);
  refuse(mesh.pipeline > 1 && s.data_parallel.find_unused, "find-unused",
         "a stage uses all of its parameters; leave it out");
  refuse(
      s.data_parallel.sync_batch_norm && s.training.microbatches > 1, "sync-batch-norm",
      "it sums over ranks once a micro-batch, and ranks with fewer pictures have fewer of these; give --microbatches "
      "1");
  refuse(s.data_parallel.mode == "replicate" && s.training.microbatches > 1, "microbatches",
         "--mode replicate copies the model for every batch, and runs it as one; give --microbatches 1");
}

}  // namespace

void follow_launcher(Settings& s, const Chapter& chapter, const WasGiven& was_given) {
  const std::optional<LaunchEnvironment>& process = launch_environment();
  if (!process) {
    s.world.transport = was_given("transport") ? s.world.transport : "thread";
    return;
  }
  if (process->size > kMaxDevices) {
    throw UsageError(fmt::format("{} started {} processes, and --ranks can be at most {}; start fewer", process->by,
                                 process->size, kMaxDevices));
  }
  if (!chapter.flags.contains("ranks")) {
    if (process->size > 1) {
      throw UsageError(fmt::format("{} trains on one device, and {} started {} processes of it; start it by itself",
                                   chapter.program, process->by, process->size));
    }
    return;
  }
  if (was_given("transport") && s.world.transport == "thread") {
    if (process->size > 1) {
      throw UsageError(fmt::format(
          "--transport thread: {} started {} processes, and each would train alone; leave the flag out, or start one",
          process->by, process->size));
    }
    return;
  }
  // One task of srun may be a shell: as without a launcher, ranks are threads.
  if (process->by == "srun" && process->size == 1 && !was_given("transport")) {
    s.world.transport = "thread";
    return;
  }
  if (was_given("ranks") && s.world.ranks != process->size) {
    throw UsageError(fmt::format("--ranks {}: {} started {} process(es), a rank each; start {}, or leave out the flag",
                                 s.world.ranks, process->by, process->size, s.world.ranks));
  }
  s.world.ranks = process->size;
  s.world.transport = was_given("transport") ? s.world.transport : "mpi";
}

void choose_transport(Settings& s, const WasGiven& was_given) {
  const bool on_gpus = parse_device(s.world.device).type == DeviceType::cuda;
  const bool by_torchrun = launch_environment() && launch_environment()->by == "torchrun";
  if (s.world.transport == "nccl" && !on_gpus) {
    throw UsageError(
        fmt::format("--transport nccl with --device {}: NCCL sends what lies on GPUs; give --device cuda, or another "
                    "transport",
                    s.world.device));
  }
  if (s.world.transport == "mpi" && !was_given("transport") && on_gpus && (by_torchrun || nccl::is_built_in())) {
    s.world.transport = "nccl";
  }
  if (s.world.transport == "mpi" && by_torchrun && launch_environment()->size == 1 && !was_given("transport")) {
    s.world.transport = "thread";  // one rank talks to nobody
  }
  if (s.world.transport == "mpi" && by_torchrun) {
    throw UsageError(
        "torchrun's processes can talk by NCCL only, on GPUs; give --device cuda, or use mpirun -np N in its place");
  }
  // NCCL's processes meet at MASTER_ADDR, or by MPI. What is missing is told before anything starts.
  const bool meets_by_mpi = s.world.transport == "mpi" ||
                            (s.world.transport == "nccl" && launch_environment() && !master(*launch_environment()));
  if (meets_by_mpi && launch_environment() && !launch_environment()->has_pmix && !was_given("transport")) {
    throw UsageError(
        fmt::format("srun started {} processes, and Open MPI cannot bring them together without PMIx; give srun "
                    "--mpi=pmix (srun --mpi=list says whether there is one), or use mpirun in the job. --transport {} "
                    "tries all the same",
                    s.world.ranks, s.world.transport));
  }
}

void require_consistent(const Chapter& chapter, const Settings& s) {
  if (chapter.flags.contains("versions")) {
    require_consistent_versions(s);
  }
  if (chapter.flags.contains("mode")) {
    require_consistent_sharing(s);
  }
  if (s.training.microbatches > s.training.batch_size) {
    throw UsageError(
        fmt::format("--microbatches {}: a batch of {} pictures can be cut into at most {} parts; take {} or fewer, or "
                    "a larger --batch-size",
                    s.training.microbatches, s.training.batch_size, s.training.batch_size, s.training.batch_size));
  }
  if (s.run.lowered && !s.run.explain) {
    throw UsageError("--lowered shows more of what --explain shows; give --explain too, or leave it out");
  }
  if (s.pipeline.schedule == "by-hand" && s.pipeline.receives != "ahead") {
    throw UsageError(fmt::format(
        "--receives {}: the loop by hand posts each receive where it uses it; take --schedule {}, or leave it out",
        s.pipeline.receives, chapter.schedules.front()));
  }
  if (s.training.optimizer == "adam" && s.training.momentum != 0) {
    throw UsageError(fmt::format("--momentum {}: --optimizer adam takes none; leave it out", s.training.momentum));
  }
  if (s.world.clock == "wall" && s.world.link != "none") {
    throw UsageError(fmt::format(
        "--link {} is for --clock virtual: by the wall clock messages take the time that they take", s.world.link));
  }
  if (s.world.clock == "virtual" && s.world.threads > 1 && parse_device(s.world.device).type == DeviceType::cpu) {
    throw UsageError(
        fmt::format("--threads {} with --clock virtual: that clock counts the time of one core a rank; leave --threads "
                    "out",
                    s.world.threads));
  }
  const bool is_known =
      std::find(chapter.schedules.begin(), chapter.schedules.end(), s.pipeline.schedule) != chapter.schedules.end();
  const bool takes_files = !chapter.flags.contains("versions");  // a file holds one batch
  if (!chapter.schedules.empty() && !s.pipeline.schedule.empty() && !is_known &&
      !(takes_files && std::filesystem::is_regular_file(s.pipeline.schedule))) {
    throw UsageError(fmt::format("--schedule {}: {} a schedule of {} ({}){}", s.pipeline.schedule,
                                 takes_files ? "neither" : "not", chapter.program, fmt::join(chapter.schedules, ", "),
                                 takes_files ? " nor a file" : ""));
  }
  if (chapter.flags.contains("ranks") && s.world.device != "cpu" && s.world.device != "cuda") {
    throw UsageError(fmt::format("--device {} names one device; {} ranks take theirs in turn from cpu or cuda",
                                 s.world.device, s.world.ranks));
  }
}

}  // namespace stagecoach
