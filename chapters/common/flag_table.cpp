#include "chapters/common/flag_table.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "core/device.h"
#include "nn/models.h"
#include "parallel/comm/link.h"

namespace stagecoach {
namespace {

constexpr std::uint64_t kMaxSteps = std::uint64_t{1} << 30;
constexpr std::uint64_t kMaxBucket = std::uint64_t{1} << 40;
constexpr double kLeastRate = 1e-100;
constexpr double kMaxRate = 1e100;
constexpr bool kOrZero = true;

/// Returns these chapters as the only ones that offer a flag; `elsewhere` says why the others do not.
template <int... numbers>
Chapters only_in(const std::string& elsewhere) {
  return {{numbers...}, elsewhere};
}

std::string list(const std::vector<std::string>& names) { return fmt::format("{}", fmt::join(names, ", ")); }

std::vector<Flag> data_and_model() {
  return {
      {"data", "Data", any_text(&DataSettings::source), Scope::run,  // the same images may be elsewhere
       "CIFAR-10 in its binary layout, a folder of images, or 'generated'"},
      {"max-megapixels", "Data", whole(&DataSettings::max_megapixels, 1, 700),  // 3 bytes per pixel fit in an int
       Scope::run, "Refuse larger files of images, before they are decoded"},
      {"augment", "Data", on_off(&TrainingSettings::augment), Scope::training,
       "Crop and flip the training images at random"},
      {"image-size", "Data", whole(&TrainingSettings::image_size, 0, 1024), Scope::training,
       "Resize the images to this many pixels (0: what the model is made for)"},
      {"model", "Model", word(&TrainingSettings::model, model_names()), Scope::training, "The model"},
      {"depth", "Model", whole(&TrainingSettings::depth, 0, 256), Scope::training,
       "Equal layers of vit and mlp (0: what the model is made for)"},
      {"width", "Model", whole(&TrainingSettings::width, 0, 8192), Scope::training,
       "Features of a token of vit, of a hidden layer of mlp (0: what the model is made for)"},
      {"heads", "Model", whole(&TrainingSettings::heads, 0, 1024), Scope::training,
       "Heads of vit's attention, which divide the width (0: what the model is made for)"},
      {"head", "Model", word(&TrainingSettings::head), Scope::training,
       "What the model ends with: 'softmax' adds one before the loss"},
  };
}

std::vector<Flag> training() {
  const std::string late = "it is for gradients that come late, in chapter 4 (ch04_pipedream)";
  return {
      {"epochs", "Training", whole(&TrainingSettings::epochs, 1, kMaxSteps), Scope::run,
       "How often to go through the data, in all"},
      {"batch-size", "Training", whole(&TrainingSettings::batch_size, 1, kMaxBatchSize), Scope::training,
       "Images between two optimizer steps"},
      {"microbatches", "Training", whole(&TrainingSettings::microbatches, 1, 1 << 16), Scope::training,
       "Parts of a batch, whose gradients are added",
       only_in<1, 3, 4, 5, 6>("this chapter does not cut its batches; chapters 1 and 3 to 6 do")},
      {"optimizer", "Training", word(&TrainingSettings::optimizer), Scope::training, "sgd or adam"},
      {"lr", "Training", real(&TrainingSettings::lr, kLeastRate, kMaxRate, kOrZero), Scope::training,
       "Learning rate (0: 0.01 for sgd, 0.001 for adam)"},
      {"momentum", "Training", real(&TrainingSettings::momentum, 0, 0.999999), Scope::training,
       "Momentum of sgd (0.9 if not given)"},
      {"weight-decay", "Training", real(&TrainingSettings::weight_decay, kLeastRate, kMaxRate, kOrZero),
       Scope::training, "L2 weight decay"},
      {"lr-warmup", "Training", whole(&TrainingSettings::lr_warmup, 0, kMaxSteps), Scope::training,
       "Batches in which the learning rate rises from 0", only_in<4>(late)},
      {"lr-discount", "Training", whole(&TrainingSettings::lr_discount, 0, kMaxSteps), Scope::training,
       "Batches in which a stage's learning rate is divided by a power of its delay + 1 that falls to 0",
       only_in<4>(late)},
      {"seed", "Training", whole(&TrainingSettings::seed, 0, std::numeric_limits<std::uint64_t>::max()),
       Scope::training, "Fixes the initial weights, the order of the data, and the augmentation"},
      {"ranks", "Pipeline", whole(&WorldSettings::ranks, 1, kMaxDevices), Scope::rank_dependent_training,
       "Devices that train together",
       only_in<2, 3, 4, 5, 6>("this chapter trains on one device; ranks begin in chapter 2")},
  };
}

std::vector<Flag> data_parallel() {
  const std::string no_sharing = "here ranks do not share batches; that belongs to chapter 6 (ch06_ddp)";
  const std::string no_reduction = "no gradients are reduced here; that belongs to chapter 6 (ch06_ddp)";
  return {
      {"mode", "Data parallel", word(&DataParallelSettings::mode), Scope::run,
       "How ranks share a batch. Gradients are summed: 'single' all at once after the backward, 'parameter' each as it "
       "comes, 'buckets' some together; the weights are owned: 'central' by one rank that gathers gradients, "
       "'replicate' by one that sends copies for every batch",
       only_in<6>(no_sharing)},
      {"mesh", "Data parallel", parsed(&DataParallelSettings::mesh), Scope::training,
       "Ranks that share data and ranks of a pipeline, such as dp=2,pp=2 (none: all share data)",
       only_in<6>(no_sharing)},
      {"bucket-size", "Data parallel", bytes(&DataParallelSettings::bucket_size, 1, kMaxBucket), Scope::run,
       "Bytes at which a bucket of gradients is closed; with units also 64KiB", only_in<6>(no_reduction)},
      {"first-bucket-size", "Data parallel", bytes(&DataParallelSettings::first_bucket_size, 1, kMaxBucket), Scope::run,
       "The same for the first bucket", only_in<6>(no_reduction)},
      {"find-unused", "Data parallel", on_off(&DataParallelSettings::find_unused), Scope::run,
       "Look in each graph for parameters that get no gradient", only_in<6>(no_reduction)},
      {"compress", "Data parallel", word(&DataParallelSettings::compress), Scope::training,
       "How a bucket travels: " + list(compression_names()), only_in<6>(no_reduction)},
      {"sync-batch-norm", "Data parallel", on_off(&DataParallelSettings::sync_batch_norm), Scope::training,
       "Batch norm over the whole batch, not over a rank's part",
       only_in<6>("here no other rank has a part of the micro-batch; it belongs to chapter 6 (ch06_ddp)")},
  };
}

std::vector<Flag> pipeline(const Chapter& chapter) {
  const bool has_replicas = chapter.number == 4 || chapter.number == kEveryChapter;
  std::vector<std::string> balances = names_of(Balance{});
  if (!has_replicas) {
    balances.resize(3);
  }
  const std::string one_device = "this chapter trains on one device; models are split from chapter 2 on";
  return {
      {"versions", "Pipeline", word(&PipelineSettings::versions), Scope::training,
       "Which weights a micro-batch meets: " + list(version_names()),
       only_in<4>("here gradients come in time, and one version of the weights is enough; versions belong to chapter 4 "
                  "(ch04_pipedream)")},
      {"version-check", "Pipeline", on_off(&PipelineSettings::version_check), Scope::run,
       "Refuse a backward whose weights have changed since its forward",
       only_in<4>("the check is always on here; versions of weights belong to chapter 4 (ch04_pipedream)")},
      {"ledger", "Pipeline", on_off(&RunSettings::ledger), Scope::command,
       "Print which version each forward and backward uses, and the delays",
       only_in<4>("here there is one version of the weights; the ledger belongs to chapter 4 (ch04_pipedream)")},
      {"replicas", "Pipeline", parsed(&PipelineSettings::replicas), Scope::training,
       "Ranks per stage, such as 2,1,1 (none: one each, or as --balance says)",
       only_in<4>("this chapter gives each stage one rank; replicas belong to chapter 4 (ch04_pipedream)")},
      {"schedule", "Pipeline", any_text(&PipelineSettings::schedule), Scope::run,
       list(chapter.schedules) + (has_replicas ? "" : ", or a file with a table of actions"),
       only_in<3, 4, 5, 6>("this chapter has one order of work; schedules to choose from begin in chapter 3")},
      {"chunks", "Pipeline", whole(&PipelineSettings::chunks, 0, 1024), Scope::run,
       "Stages per rank (0: two where the schedule takes several)",
       only_in<5, 6>("this chapter gives each rank one stage; chunks belong to chapter 5 (ch05_interleaved)")},
      {"group", "Pipeline", whole(&PipelineSettings::group, 0, 1 << 16), Scope::run,
       "Micro-batches that pass a chunk before the next one's turn (0: as many as ranks)",
       only_in<5, 6>("this chapter gives each rank one stage; groups belong to chapter 5 (ch05_interleaved)")},
      {"split", "Pipeline", parsed(&PipelineSettings::split), Scope::asynchronous_training,
       "Layers per stage, such as 5,4,3 (none: as --balance says)", only_in<2, 3, 4, 5, 6>(one_device)},
      {"balance", "Pipeline", word(&PipelineSettings::balance, balances), Scope::run,
       std::string("Give the stages equal layers, parameters, or measured times") +
           (has_replicas ? "; 'pipedream' chooses stages and replicas for the link" : ""),
       only_in<2, 3, 4, 5, 6>(one_device)},
      {"plan", "Pipeline", any_text(&PipelineSettings::plan), Scope::command,
       "File of --save-plan: its measured layers; and its stages, unless --balance is given",
       only_in<4>("this chapter measures its layers itself; plans belong to chapter 4 (ch04_pipedream)")},
      {"save-plan", "Pipeline", any_text(&PipelineSettings::save_plan), Scope::command,
       "Write the measured layers and the stages to a file",
       only_in<4>("this chapter has no plan to save; plans belong to chapter 4 (ch04_pipedream)")},
      {"recompute", "Pipeline", on_off(&PipelineSettings::recompute), Scope::run,
       "Keep only the stages' inputs, and run forward again before backward (activation checkpointing)",
       only_in<3, 4, 5, 6>("this chapter keeps one micro-batch at a time; pipelines begin in chapter 3")},
      {"receives", "Pipeline", parsed(&PipelineSettings::receives), Scope::run,
       "When receives are posted: 'at-use', 'ahead' (at most 4 per rank that are not yet used; more where sends wait "
       "for their receivers), or at most so many",
       only_in<3, 4, 5, 6>(
           "this chapter posts a receive where it is written; pipelines from a table begin in chapter 3")},
  };
}

std::vector<Flag> ranks_and_machine() {
  const std::string no_messages = "this chapter trains on one device and sends no messages; ranks begin in chapter 2";
  return {
      {"clock", "Ranks", word(&WorldSettings::clock), Scope::run,
       "'virtual': each rank's own computing time, as if it had a device to itself"},
      {"link", "Ranks", parsed(&WorldSettings::link), Scope::run,
       "What messages take on the virtual clock: " + list(link_names()) + ", or LATENCY,BANDWIDTH",
       only_in<2, 3, 4, 5, 6>(no_messages)},
      {"transport", "Ranks", word(&WorldSettings::transport), Scope::run,
       "How ranks talk: as threads of one process, as processes of mpirun or srun by MPI, or with a GPU each by NCCL",
       only_in<2, 3, 4, 5, 6>(no_messages)},
      {"reduce", "Ranks", word(&WorldSettings::reduce), Scope::training,
       "How gradients are summed: 'ordered' rank by rank, so that equal runs give equal bytes, or 'native' by MPI's or "
       "NCCL's own all-reduce, which promises 1e-5",
       only_in<6>("no gradients are summed over ranks here; it belongs to chapter 6 (ch06_ddp)")},
      {"timeout", "Ranks", real(&WorldSettings::timeout, 1e-6, kLongestTimeout), Scope::run,
       "Seconds that a rank waits for another before all give up",
       only_in<2, 3, 4, 5, 6>("this chapter trains on one device and waits for nobody; ranks begin in chapter 2")},
      {"device", "Machine", parsed(&WorldSettings::device), Scope::run,
       "cpu, cuda, or one by its index such as cuda:1"},
      {"threads", "Machine", whole(&WorldSettings::threads, 1, kMaxThreads), Scope::run,
       "Cores that each device uses; no result depends on it"},
      {"graph", "Machine", on_off(&WorldSettings::cuda_graph), Scope::run,
       "Record a training step and give it to a GPU at once",
       only_in<1>("no step is recorded here; it belongs to chapter 1")},
      {"tf32", "Machine", on_off(&WorldSettings::tf32), Scope::training,
       "Let a GPU round the factors of matrix products to 10 bits, for its tensor cores"},
  };
}

std::vector<Flag> run() {
  return {
      {"out", "Run", any_text(&RunSettings::out), Scope::command,
       "Folder for config, metrics, trace, weights and checkpoint (none: nothing is written)"},
      {"resume", "Run", any_text(&RunSettings::resume), Scope::command,
       "Folder of an earlier run: go on from its last checkpoint"},
      {"explain", "Run", on_off(&RunSettings::explain), Scope::command,
       "Show what a step does and keeps, and do not train"},
      {"lowered", "Run", on_off(&RunSettings::lowered), Scope::command,
       "With --explain: list sends, receives and reductions in the schedule too",
       only_in<3, 4, 5, 6>("this chapter has no table of actions; schedules begin in chapter 3")},
      {"profile", "Run", on_off(&RunSettings::profile), Scope::command, "Show where the time went in the first steps"},
      {"smoke", "Run", on_off(&DataSettings::smoke), Scope::training, "A run of a few seconds on generated data"},
  };
}

}  // namespace

bool Flag::is_offered_by(int chapter) const {
  const std::vector<int>& numbers = chapters.numbers;
  return numbers.empty() || chapter == kEveryChapter ||
         std::find(numbers.begin(), numbers.end(), chapter) != numbers.end();
}

bool Flag::shapes_training(const Settings& settings) const {
  const bool is_asynchronous = settings.pipeline.versions.has_value();
  switch (scope) {
    case Scope::training:
      return true;
    case Scope::asynchronous_training:
      return is_asynchronous;
    case Scope::rank_dependent_training:
      return is_asynchronous || settings.data_parallel.mode.has_value();
    default:
      return false;
  }
}

std::vector<Flag> flag_table(const Chapter& chapter) {
  std::vector<Flag> all = data_and_model();
  for (std::vector<Flag> part : {training(), data_parallel(), pipeline(chapter), ranks_and_machine(), run()}) {
    std::move(part.begin(), part.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace stagecoach
