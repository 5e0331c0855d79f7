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
  const std::vector<std::string> models = model_names();
  return {
      {"data", "Data", text(&DataSettings::source), Scope::run,  // the same images may be elsewhere
       "Folder of CIFAR-10 in its binary layout or of images, or 'generated'"},
      {"max-megapixels", "Data", whole(&DataSettings::max_megapixels, 1, 700),  // 3 bytes per pixel fit in an int
       Scope::run, "Reject larger images before they are decoded"},
      {"background", "Data", text(&DataSettings::background), Scope::run,
       "Lay transparent pixels on this colour: white, black, grey or #rrggbb"},
      {"augment", "Data", on_off(&TrainingSettings::augment), Scope::training,
       "Crop and flip the training images at random"},
      {"image-size", "Data", whole(&TrainingSettings::image_size, 0, 1024), Scope::training,
       "Resize the images to this height and width in pixels (0: the model's default)"},
      {"model", "Model", word(&TrainingSettings::model, models, [=](std::size_t i) { return models[i]; }),
       Scope::training, "Model to train"},
      {"depth", "Model", whole(&TrainingSettings::depth, 0, 256), Scope::training,
       "Number of equal layers in vit and mlp (0: the model's default)"},
      {"width", "Model", whole(&TrainingSettings::width, 0, 8192), Scope::training,
       "Features per token in vit, or per hidden layer in mlp (0: the model's default)"},
      {"heads", "Model", whole(&TrainingSettings::heads, 0, 1024), Scope::training,
       "Attention heads of vit; their number must divide the width (0: the model's default)"},
      {"head", "Model", word(&TrainingSettings::head), Scope::training,
       "Output of the model: 'softmax' adds a softmax before the loss"},
  };
}

std::vector<Flag> training() {
  const std::string whole_layers = "layers are whole here; they are cut in chapter 8 (ch08_tensor_parallel)";
  const std::string late = "no gradient is delayed here; delays belong to chapter 4 (ch04_pipedream)";
  return {
      {"epochs", "Training", whole(&TrainingSettings::epochs, 1, kMaxSteps), Scope::run,
       "Total number of epochs (passes over the training images)"},
      {"batch-size", "Training", whole(&TrainingSettings::batch_size, 1, kMaxBatchSize), Scope::training,
       "Images per optimizer step"},
      {"microbatches", "Training", whole(&TrainingSettings::microbatches, 1, 1 << 16), Scope::batch_parts,
       "Micro-batches per batch; their gradients are added",
       only_in<1, 3, 4, 5, 6, 7, 8>("this chapter does not divide its batches; chapters 1 and 3 to 8 do")},
      {"optimizer", "Training", word(&TrainingSettings::optimizer), Scope::training, "Optimizer"},
      {"lr", "Training", real(&TrainingSettings::lr, kLeastRate, kMaxRate, kOrZero), Scope::training,
       "Learning rate (0: 0.01 for sgd, 0.001 for adam)"},
      {"momentum", "Training", real(&TrainingSettings::momentum, 0, 0.999999), Scope::training,
       "Momentum of sgd (default: 0.9)"},
      {"weight-decay", "Training", real(&TrainingSettings::weight_decay, kLeastRate, kMaxRate, kOrZero),
       Scope::training, "L2 weight decay"},
      {"lr-warmup", "Training", whole(&TrainingSettings::lr_warmup, 0, kMaxSteps), Scope::training,
       "Batches over which the learning rate rises from 0", only_in<4>(late)},
      {"lr-discount", "Training", whole(&TrainingSettings::lr_discount, 0, kMaxSteps), Scope::training,
       "Batches over which a stage's learning rate is divided by a power of (its delay + 1); the exponent falls to 0",
       only_in<4>(late)},
      {"seed", "Training", whole(&TrainingSettings::seed, 0, std::numeric_limits<std::uint64_t>::max()),
       Scope::training, "Seed of the initial weights, the order of the data, and the augmentation"},
      {"tensor-slices", "Training", whole(&TrainingSettings::tensor_slices, 1, kMaxPlannedRanks), Scope::training,
       "Slices in which layers are computed, on one rank or on as many tensor-parallel ranks, with the same bytes",
       only_in<1, 8>(whole_layers)},
      {"sequence-parallel", "Training", on_off(&TrainingSettings::sequence_parallel), Scope::training,
       "Let the slices share the tokens of vit between the layers that are cut", only_in<1, 8>(whole_layers)},
      {"class-parallel", "Training", on_off(&TrainingSettings::class_parallel), Scope::training,
       "Cut the last layer by classes, and compute the loss without gathering the logits", only_in<1, 8>(whole_layers)},
      {"ranks", "Pipeline", whole(&WorldSettings::ranks, 1, kMaxPlannedRanks), Scope::rank_dependent_training,
       "Number of ranks, each with a device of its own; in chapter 7, of devices of one program",
       only_in<2, 3, 4, 5, 6, 7, 8>("this chapter trains on one device; ranks begin in chapter 2")},
  };
}

std::vector<Flag> data_parallel() {
  const std::string no_sharing = "ranks do not share batches here; data parallelism belongs to chapter 6 (ch06_ddp)";
  const std::string no_reduction = "no gradients are reduced here; reductions belong to chapter 6 (ch06_ddp)";
  return {
      {"mode", "Data parallel", word(&ReplicaSettings::mode), Scope::run,
       "How ranks share a batch. 'single', 'parameter' and 'buckets' sum gradients: all at once after the backward, "
       "one by one as they arrive, or several together. With 'central' (a parameter server) one rank owns the weights "
       "and gathers gradients",
       only_in<6>(no_sharing)},
      {"mesh", "Data parallel", text(&ReplicaSettings::mesh), Scope::rank_dependent_training,
       "Numbers of data-parallel ranks, pipeline ranks and (chapter 8) tensor-parallel ranks, such as dp=2,pp=2",
       only_in<6, 8>(no_sharing)},
      {"overlap", "Data parallel", on_off(&ReplicaSettings::overlap), Scope::run,
       "Sum the gradient of a cut layer's input while the gradients of its weights are computed",
       only_in<8>("layers are whole here; they are cut in chapter 8 (ch08_tensor_parallel)")},
      {"rank-order", "Data parallel", text(&ReplicaSettings::rank_order), Scope::run,
       "Directions of the mesh, beginning with that of consecutive ranks",
       only_in<8>("the mesh has a fixed order here; orders to choose from belong to chapter 8 (ch08_tensor_parallel)")},
      {"bucket-size", "Data parallel", whole(&ReplicaSettings::bucket_size, 1, kMaxBucket, byte_count), Scope::run,
       "Bytes at which a bucket of gradients is closed, such as 65536 or 64KiB", only_in<6, 8>(no_reduction)},
      {"first-bucket-size", "Data parallel", whole(&ReplicaSettings::first_bucket_size, 1, kMaxBucket, byte_count),
       Scope::run, "Bytes at which the first bucket is closed", only_in<6, 8>(no_reduction)},
      {"find-unused", "Data parallel", on_off(&ReplicaSettings::find_unused), Scope::run,
       "Search each graph for parameters that get no gradient", only_in<6>(no_reduction)},
      {"compress", "Data parallel", word(&ReplicaSettings::compress), Scope::training,
       "Compression of a bucket's gradients: " + list(names_of(CompressionKind{})), only_in<6>(no_reduction)},
      {"sync-batch-norm", "Data parallel", on_off(&ReplicaSettings::sync_batch_norm), Scope::training,
       "Batch norm over the whole batch instead of over a rank's part",
       only_in<6>(
           "no micro-batch is shared by several ranks here; synchronized batch norm belongs to chapter 6 (ch06_ddp)")},
  };
}

std::vector<Flag> pipeline(const Chapter& chapter) {
  const bool has_replicas = chapter.number == 4 || chapter.number == kEveryChapter;
  std::vector<std::string> balances = names_of(Balance{});
  if (!has_replicas) {
    balances.resize(3);
  }
  const std::string one_device = "this chapter trains on one device; models are split from chapter 2 on";
  const std::string ranks =
      "ranks run their own devices here; one controller belongs to chapter 7 (ch07_one_controller)";
  return {
      {"versions", "Pipeline", word(&PipelineSettings::versions), Scope::training,
       "Which version of the weights a micro-batch uses: " + list(names_of(Versions{})),
       only_in<4>("no gradient is delayed here, so one version of the weights is enough; versions belong to chapter 4 "
                  "(ch04_pipedream)")},
      {"version-check", "Pipeline", on_off(&PipelineSettings::version_check), Scope::run,
       "Stop at a backward whose weights have changed since its forward",
       only_in<4>("the check is always on here; versions of weights belong to chapter 4 (ch04_pipedream)")},
      {"ledger", "Pipeline", on_off(&RunSettings::ledger), Scope::command,
       "Print which version of the weights each forward and backward uses, and the delays",
       only_in<4>("there is only one version of the weights here; the ledger belongs to chapter 4 (ch04_pipedream)")},
      {"replicas", "Pipeline", text(&PipelineSettings::replicas), Scope::training,
       "Ranks per stage, such as 2,1,1 (none: one each, or chosen by --balance)",
       only_in<4>("this chapter gives each stage one rank; replicas belong to chapter 4 (ch04_pipedream)")},
      {"schedule", "Pipeline", text(&PipelineSettings::schedule), Scope::run,
       list(chapter.schedules) + (has_replicas ? "" : ", or a file with a table of actions"),
       only_in<3, 4, 5, 6, 8>("this chapter has a fixed schedule; schedules to choose from begin in chapter 3")},
      {"chunks", "Pipeline", whole(&PipelineSettings::chunks, 0, 1024), Scope::run,
       "Chunks (virtual stages) per rank (0: two if the schedule allows several)",
       only_in<5, 6, 8>("this chapter gives each rank one stage; chunks belong to chapter 5 (ch05_interleaved)")},
      {"group", "Pipeline", whole(&PipelineSettings::group, 0, 1 << 16), Scope::run,
       "Micro-batches that run through a chunk before the next chunk's turn (0: as many as ranks)",
       only_in<5, 6, 8>("this chapter gives each rank one stage; groups belong to chapter 5 (ch05_interleaved)")},
      {"split", "Pipeline", text(&PipelineSettings::split), Scope::asynchronous_training,
       "Layers per stage, such as 5,4,3 (none: chosen by --balance)", only_in<2, 3, 4, 5, 6, 7, 8>(one_device)},
      {"balance", "Pipeline", word(&PipelineSettings::balance, balances), Scope::run,
       std::string("Balance the stages by layers, parameters, or measured time") +
           (has_replicas ? "; 'pipedream' chooses stages and replicas for the link" : ""),
       only_in<2, 3, 4, 5, 6, 7, 8>(one_device)},
      {"profile-file", "Pipeline", text(&PipelineSettings::profile_file), Scope::command,
       "Read what the layers cost from this file (docs/reference/profile.md) instead of measuring; --profile --out "
       "writes one",
       only_in<2, 3, 4, 5, 6, 7, 8>(one_device)},
      {"recompute", "Pipeline", on_off(&PipelineSettings::recompute), Scope::run,
       "Keep only the stages' inputs, and run the forward again before the backward (activation checkpointing)",
       only_in<3, 4, 5, 6, 8>("this chapter keeps only one micro-batch at a time; pipelines begin in chapter 3")},
      {"form", "Pipeline", word(&PipelineSettings::form), Scope::training,
       "'naive': each batch whole through one device after another; 'pipelined': micro-batches by clock ticks; "
       "'remote': a master calls stages on workers",
       only_in<7>(ranks)},
      {"splits", "Pipeline", text(&PipelineSettings::splits), Scope::run,
       "Numbers of micro-batches that --form remote trains with, one after another", only_in<7>(ranks)},
      {"copy-stream", "Pipeline", word(&PipelineSettings::copy_stream), Scope::run,
       "Stream for copies between devices: the one that computes, or its own beside it", only_in<7>(ranks)},
      {"synchronous", "Pipeline", on_off(&PipelineSettings::synchronous), Scope::run,
       "Run every call on a CPU device at once, in the program's thread", only_in<7>(ranks)},
      {"receives", "Pipeline", text(&PipelineSettings::receives), Scope::run,
       "When to post receives: 'at-use', 'ahead' (at most 4 unused ones per rank; more if sends wait for their "
       "receivers), or the maximum number of unused ones",
       only_in<3, 4, 5, 6, 8>(
           "this chapter posts each receive where the tensor is used; pipelines with a schedule begin in chapter 3")},
  };
}

std::vector<Flag> ranks_and_machine() {
  const std::string no_messages = "this chapter trains on one device and sends no messages; ranks begin in chapter 2";
  return {
      {"clock", "Ranks", word(&WorldSettings::clock), Scope::run,
       "'wall'; 'virtual': each rank's own computing time, as if it had a device to itself; or 'modelled': what "
       "--device-model would take, computed, so that it is the same on every machine"},
      {"device-model", "Ranks", text(&WorldSettings::modelled_device), Scope::run,
       "Each rank's device on the modelled clock: " + list(device_model_names()) +
           ", or a file (calibrate writes one)"},
      {"link", "Ranks", text(&WorldSettings::link), Scope::run,
       "Latency and bandwidth of messages on the virtual or modelled clock: " + list(link_names()) +
           ", or LATENCY,BANDWIDTH; with several nodes inner=LINK,outer=LINK,per-node=RANKS, where the ranks of a node "
           "share the outer link",
       only_in<2, 3, 4, 5, 6, 7, 8>(no_messages)},
      {"transport", "Ranks", word(&WorldSettings::transport), Scope::run,
       "How ranks communicate: 'thread' as threads of one process, 'mpi' as processes of mpirun or srun, 'gloo' as "
       "processes of torchrun, 'nccl' with one GPU each",
       only_in<2, 3, 4, 5, 6, 8>(no_messages)},
      {"reduce", "Ranks", word(&WorldSettings::reduce), Scope::training,
       "How gradients are summed: 'ordered' by rank, so that equal runs give equal bytes, or 'native' by the "
       "all-reduce of MPI, Gloo or NCCL, which agrees within 1e-5",
       only_in<6, 8>("no gradients are summed over ranks here; reductions belong to chapter 6 (ch06_ddp)")},
      {"timeout", "Ranks", real(&WorldSettings::timeout, 1e-6, kLongestTimeout), Scope::run,
       "Seconds that a rank waits for another before all ranks give up",
       only_in<2, 3, 4, 5, 6, 7, 8>(
           "this chapter trains on one device and waits for no other rank; ranks begin in chapter 2")},
      {"device", "Machine", text(&WorldSettings::device), Scope::run,
       "cpu, cuda, or either with an index, such as cuda:1"},
      {"threads", "Machine", whole(&WorldSettings::threads, 1, kMaxThreads), Scope::run,
       "Cores per device; results do not depend on their number"},
      {"graph", "Machine", on_off(&WorldSettings::cuda_graph), Scope::run,
       "Launch a training step, or a stage's forward or backward, as a whole: as a recorded CUDA graph",
       only_in<1, 2, 3, 4, 5, 6>("no step is recorded here; graphs belong to chapters 1 to 6")},
      {"tf32", "Machine", on_off(&WorldSettings::tf32), Scope::training,
       "Let a GPU round the factors of matrix products to TF32 (10-bit mantissas) for its tensor cores"},
  };
}

std::vector<Flag> run(const Chapter& chapter) {
  const std::vector<std::string> bugs = bug_names(chapter.number);
  return {
      {"out", "Run", text(&RunSettings::out), Scope::command,
       "Folder for config, metrics, trace, weights and checkpoints (none: nothing is written)"},
      {"resume", "Run", text(&RunSettings::resume), Scope::command,
       "Folder of an earlier run: continue from its last checkpoint"},
      {"accept-new-data", "Run", on_off(&RunSettings::accept_new_data), Scope::command,
       "With --resume: continue even if the data differ from those of the checkpoint"},
      {"explain", "Run", on_off(&RunSettings::explain), Scope::command,
       "Show what a step does and what it keeps in memory, without training"},
      {"lowered", "Run", on_off(&RunSettings::lowered), Scope::command,
       "With --explain: also list sends, receives and reductions in the schedule",
       only_in<3, 4, 5, 6, 8>("this chapter has no schedule table; schedules begin in chapter 3")},
      {"table-format", "Run", word(&RunSettings::table_format), Scope::command,
       "With --explain --out: 'pytorch' adds the waits and reductions to schedule_lowered.csv that PyTorch expects",
       only_in<3, 5, 6, 8>("this chapter has no table that PyTorch loads; such tables are in chapters 3, 5, 6 and 8")},
      {"profile", "Run", on_off(&RunSettings::profile), Scope::command, "Show where the time went in the first steps"},
      {"summary", "Run", on_off(&RunSettings::summary), Scope::command,
       "At the end, show five numbers: step time, idle share, memory per rank, bytes per link, staleness"},
      {"inject", "Run", word(&TrainingSettings::inject, bugs, [=](std::size_t i) { return bug_named(bugs[i]); }),
       Scope::command, "Train with a known bug, to be found (docs/bugs.md); 'list' lists those of this chapter",
       only_in<1, 2, 3, 4, 5, 6>("no bug of the museum is in this chapter; chapters 1 to 6 have some")},
      {"smoke", "Run", on_off(&DataSettings::smoke), Scope::training, "A run of a few seconds on generated data"},
  };
}

}  // namespace

bool Flag::is_offered_by(int chapter) const {
  return chapters.numbers.empty() || includes_chapter(chapters.numbers, chapter);
}

bool Flag::shapes_training(const Settings& settings) const {
  const bool is_asynchronous = settings.pipeline.versions.has_value();
  switch (scope) {
    case Scope::training:
      return true;
    case Scope::asynchronous_training:
      return is_asynchronous;
    case Scope::rank_dependent_training:
      return is_asynchronous || settings.data_parallel.compress != CompressionKind::none;
    case Scope::batch_parts:
      return !shares_batches(settings);
    default:
      return false;
  }
}

std::vector<Flag> flag_table(const Chapter& chapter) {
  std::vector<Flag> all = data_and_model();
  for (std::vector<Flag> part : {training(), data_parallel(), pipeline(chapter), ranks_and_machine(), run(chapter)}) {
    std::move(part.begin(), part.end(), std::back_inserter(all));
  }
  return all;
}

const std::vector<Flag>& flag_table() {
  static const std::vector<Flag> table = flag_table(Chapter{});
  return table;
}

}  // namespace stagecoach
