#include "chapters/common/flag_table.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "core/device.h"
#include "nn/models.h"
#include "parallel/comm/link.h"

namespace stagecoach {
namespace {

using Data = DataSettings;
using Training = TrainingSettings;
using Pipelines = PipelineSettings;
using Replicas = ReplicaSettings;
using Ranks = WorldSettings;
using Runs = RunSettings;

constexpr std::uint64_t kMaxSteps = std::uint64_t{1} << 30;
constexpr std::uint64_t kMaxBucket = std::uint64_t{1} << 40;
constexpr double kMinRate = 1e-100;
constexpr double kMaxRate = 1e100;
constexpr bool kOrZero = true;

// The chapters that offer a flag.
template <class... Numbers>
std::vector<int> in(Numbers... chapters) {
  return {chapters...};
}
const std::vector<int> kAll;
const std::vector<int> kWithRanks = in(2, 3, 4, 5, 6, 7, 8, 9);
const std::vector<int> kWithMessages = in(2, 3, 4, 5, 6, 8, 9);
const std::vector<int> kWithSchedules = in(3, 4, 5, 6, 8);
const std::vector<int> kWithChunks = in(5, 6, 8);
const std::vector<int> kWithSlices = in(1, 8);
const std::vector<int> kWithReductions = in(6, 8);
const std::vector<int> kWithPipelines = in(2, 3, 4, 5, 6, 7, 8);

std::string list(const std::vector<std::string>& names) { return fmt::format("{}", fmt::join(names, ", ")); }

std::vector<Flag> data() {
  return {
      {"data", text(&Data::source), Scope::run, kAll,  // the same images may be elsewhere
       "Folder of CIFAR-10 in its binary layout, arrays or images, or 'generated'; for gpt text:FILE or text:book, "
       "this "
       "project's texts"},
      {"max-megapixels", whole(&Data::max_megapixels, 1, 700), Scope::run, kAll,  // 3 bytes per pixel fit in an int
       "Reject larger images before they are decoded"},
      {"background", text(&Data::background), Scope::run, kAll,
       "Lay transparent pixels on this colour: white, black, grey or #rrggbb"},
      {"data-on-device", on_off(&Ranks::data_on_device), Scope::run, kAll,
       "Copy the data set to each device that needs it once, and make the batches there"},
      {"augment", on_off(&Training::augment), Scope::training, kAll, "Crop and flip the training images at random"},
      {"image-size", whole(&Training::image_size, 0, 1024), Scope::training, kAll,
       "Resize the images to this height and width in pixels (0: the model's default)"},
  };
}

std::vector<Flag> model() {
  const std::vector<std::string> models = model_names();
  return {
      {"model", word(&Training::model, models, [=](std::size_t i) { return models[i]; }), Scope::training, kAll,
       "Model to train"},
      {"depth", whole(&Training::depth, 0, 256), Scope::training, kAll,
       "Number of equal layers in vit, gpt and mlp (0: the model's default)"},
      {"width", whole(&Training::width, 0, 8192), Scope::training, kAll,
       "Features per token in vit and gpt, or per hidden layer in mlp (0: the model's default)"},
      {"heads", whole(&Training::heads, 0, 1024), Scope::training, kAll,
       "Attention heads of vit and gpt; their number must divide the width (0: the model's default)"},
      {"context", whole(&Training::context, 0, 4096), Scope::training, kAll,
       "Bytes of a sequence of gpt (0: the model's default)"},
      {"dropout", real(&Training::dropout, 1e-6, 0.999, kOrZero), Scope::training, kAll,
       "Probability with which gpt drops an activation in training (0: it has no dropout)"},
      {"tie-head", on_off(&Training::tie_head), Scope::training, kAll,
       "Let the head of gpt share the weights of its embedding, as GPT-2's does"},
      {"head", word(&Training::head), Scope::training, kAll,
       "Output of the model: 'softmax' adds a softmax before the loss"},
  };
}

std::vector<Flag> optimization() {
  return {
      {"epochs", whole(&Training::epochs, 1, kMaxSteps), Scope::scheduled_training, kAll,
       "Total number of epochs (passes over the training data)"},
      {"batch-size", whole(&Training::batch_size, 1, kMaxBatchSize), Scope::training, kAll,
       "Images, or sequences, per optimizer step"},
      {"microbatches", whole(&Training::microbatches, 1, 1 << 16), Scope::batch_parts, in(1, 3, 4, 5, 6, 7, 8, 9),
       "Micro-batches per batch; their gradients are added"},
      {"sum-groups", whole(&Training::sum_groups, 1, 1 << 16), Scope::training, in(1),
       "Add up the gradients of the micro-batches in this many groups, and then the groups' sums, as as many ranks do"},
      {"optimizer", word(&Training::optimizer), Scope::training, kAll, "Optimizer"},
      {"lr", real(&Training::lr, kMinRate, kMaxRate, kOrZero), Scope::training, kAll,
       "Learning rate (0: 0.001 for adam and adamw, 0.01 for sgd and adagrad)"},
      {"momentum", real(&Training::momentum, 0, 0.999999), Scope::training, kAll, "Momentum of sgd (default: 0.9)"},
      {"weight-decay", real(&Training::weight_decay, kMinRate, kMaxRate, kOrZero), Scope::training, kAll,
       "L2 weight decay; of adamw, decoupled from the gradient"},
      {"decay", word(&Training::decay), Scope::training, kAll,
       "Parameters that --weight-decay applies to; 'weights' leaves out biases and norms"},
      {"clip-norm", real(&Training::clip_norm, kMinRate, kMaxRate, kOrZero), Scope::training, kAll,
       "Scale gradients down to this norm, of all parameters together, if theirs is larger (0: never)"},
      {"lr-schedule", word(&Training::lr_schedule), Scope::training, kAll,
       "Learning rate over the training: 'cosine' falls to 0, 'step' to a tenth after each third"},
      {"lr-warmup", whole(&Training::lr_warmup, 0, kMaxSteps), Scope::training, kAll,
       "Batches over which the learning rate rises from 0"},
      {"lr-discount", whole(&Training::lr_discount, 0, kMaxSteps), Scope::training, in(4),
       "Batches over which a stage's learning rate is divided by a power of (its delay + 1); the exponent falls to 0"},
      {"seed", whole(&Training::seed, 0, std::numeric_limits<std::uint64_t>::max()), Scope::training, kAll,
       "Seed of the initial weights, the order of the data, and the augmentation"},
      {"tensor-slices", whole(&Training::tensor_slices, 1, kMaxPlannedRanks), Scope::training, kWithSlices,
       "Slices in which layers are computed, on one rank or on as many tensor-parallel ranks, with the same bytes"},
      {"sequence-parallel", on_off(&Training::sequence_parallel), Scope::training, kWithSlices,
       "Let the slices share the tokens of vit between the layers that are cut"},
      {"class-parallel", on_off(&Training::class_parallel), Scope::training, kWithSlices,
       "Cut the last layer by classes, and compute the loss without gathering the logits"},
  };
}

std::vector<Flag> number_of_ranks() {
  return {{"ranks", whole(&Ranks::ranks, 1, kMaxPlannedRanks), Scope::rank_dependent_training, kWithRanks,
           "Number of ranks, each with a device of its own; in chapter 7, of devices of one program"}};
}

std::vector<Flag> data_parallel() {
  return {
      {"mode", word(&Replicas::mode), Scope::run, in(6),
       "How ranks share a batch. 'single', 'parameter' and 'buckets' sum gradients: all at once after the backward, "
       "one by one as they arrive, or several together. With 'central' (a parameter server) one rank owns the weights "
       "and gathers gradients"},
      {"mesh", text(&Replicas::mesh), Scope::rank_dependent_training, in(6, 8, 9),
       "Numbers of data-parallel ranks, pipeline ranks and (chapter 8) tensor-parallel ranks, such as dp=2,pp=2; in "
       "chapter 9 of copies and of the ranks that share one: dp=2,shard=4"},
      {"overlap", on_off(&Replicas::overlap), Scope::run, in(8),
       "Sum the gradient of a cut layer's input while the gradients of its weights are computed"},
      {"rank-order", text(&Replicas::rank_order), Scope::run, in(8),
       "Directions of the mesh, beginning with that of consecutive ranks"},
      {"bucket-size", whole(&Replicas::bucket_size, 1, kMaxBucket, byte_count), Scope::run, kWithReductions,
       "Bytes at which a bucket of gradients is closed, such as 65536 or 64KiB"},
      {"first-bucket-size", whole(&Replicas::first_bucket_size, 1, kMaxBucket, byte_count), Scope::run, kWithReductions,
       "Bytes at which the first bucket is closed"},
      {"find-unused", on_off(&Replicas::find_unused), Scope::run, in(6),
       "Search each graph for parameters that get no gradient"},
      {"compress", word(&Replicas::compress), Scope::training, in(6, 9),
       "Compression of the gradients that are sent: " + list(names_of(CompressionKind{}))},
      {"sync-batch-norm", on_off(&Replicas::sync_batch_norm), Scope::training, in(6, 9),
       "Batch norm over the whole batch instead of over a rank's part"},
      {"shard", word(&Replicas::shard), Scope::run, in(9),
       "What the ranks keep a part of each: the optimizer's state; also the gradients; or also the parameters"},
      {"reshard-after-forward", on_off(&Replicas::reshard_after_forward), Scope::run, in(9),
       "Free a unit's weights after its forward, and gather them again for its backward"},
      {"prefetch", whole(&Replicas::prefetch, 0, 1 << 16), Scope::run, in(9),
       "Units whose weights are gathered before the computation needs them"},
      {"unit-layers", text(&Replicas::unit_layers), Scope::run, in(9),
       "Layers per unit, such as 3,3,4 (none: each layer with parameters begins a unit)"},
      {"accumulation", word(&Replicas::accumulation), Scope::training, in(9),
       "Between the micro-batches of a step, keep 'whole' gradients on each rank, or 'sharded' sums over all ranks"},
      {"by-hand", on_off(&Replicas::by_hand), Scope::run, in(9),
       "Gather and free the weights of the whole model at once, with the chapter's own code"},
  };
}

std::vector<Flag> pipeline(const Chapter& chapter) {
  const bool has_replicas = chapter.number == 4 || chapter.number == kEveryChapter;
  std::vector<std::string> balances = names_of(Balance{});
  if (!has_replicas) {
    balances.resize(3);
  }
  return {
      {"versions", word(&Pipelines::versions), Scope::training, in(4),
       "Which version of the weights a micro-batch uses: " + list(names_of(Versions{}))},
      {"version-check", on_off(&Pipelines::version_check), Scope::run, in(4),
       "Stop at a backward whose weights have changed since its forward"},
      {"ledger", on_off(&Runs::ledger), Scope::command, in(4),
       "Print which version of the weights each forward and backward uses, and the delays"},
      {"replicas", text(&Pipelines::replicas), Scope::training, in(4),
       "Ranks per stage, such as 2,1,1 (none: one each, or chosen by --balance)"},
      {"schedule", text(&Pipelines::schedule), Scope::run, kWithSchedules,
       list(chapter.schedules) + (has_replicas ? "" : ", or a file with a table of actions")},
      {"chunks", whole(&Pipelines::chunks, 0, 1024), Scope::run, kWithChunks,
       "Chunks (virtual stages) per rank (0: two if the schedule allows several)"},
      {"group", whole(&Pipelines::group, 0, 1 << 16), Scope::run, kWithChunks,
       "Micro-batches that run through a chunk before the next chunk's turn (0: as many as ranks)"},
      {"split", text(&Pipelines::split), Scope::asynchronous_training, kWithPipelines,
       "Layers per stage, such as 5,4,3 (none: chosen by --balance)"},
      {"balance", word(&Pipelines::balance, balances), Scope::run, kWithPipelines,
       std::string("Balance the stages by layers, parameters, or measured time") +
           (has_replicas ? "; 'pipedream' chooses stages and replicas for the link" : "")},
      {"profile-file", text(&Pipelines::profile_file), Scope::command, kWithPipelines,
       "Read what the layers cost from this file (docs/reference/profile.md) instead of measuring; --profile --out "
       "writes one"},
      {"recompute", on_off(&Pipelines::recompute), Scope::run, kWithSchedules,
       "Keep only the stages' inputs, and run the forward again before the backward (activation checkpointing)"},
      {"form", word(&Pipelines::form), Scope::training, in(7),
       "'naive': each batch whole through one device after another; 'pipelined': micro-batches by clock ticks; "
       "'remote': a master calls stages on workers"},
      {"splits", text(&Pipelines::splits), Scope::run, in(7),
       "Numbers of micro-batches that --form remote trains with, one after another"},
      {"copy-stream", word(&Pipelines::copy_stream), Scope::run, in(7),
       "Stream for copies between devices: the one that computes, or its own beside it"},
      {"synchronous", on_off(&Pipelines::synchronous), Scope::run, in(7),
       "Run every call on a CPU device at once, in the program's thread"},
      {"receives", text(&Pipelines::receives), Scope::run, kWithSchedules,
       "When to post receives: 'at-use', 'ahead' (at most 4 unused ones per rank; more if sends wait for their "
       "receivers), or the maximum number of unused ones"},
  };
}

std::vector<Flag> ranks() {
  return {
      {"clock", word(&Ranks::clock), Scope::run, kAll,
       "'wall'; 'virtual': each rank's own computing time, as if it had a device to itself; or 'modelled': what "
       "--device-model would take, computed, so that it is the same on every machine"},
      {"device-model", text(&Ranks::modelled_device), Scope::run, kAll,
       "Each rank's device on the modelled clock: " + list(device_model_names()) +
           ", or a file (calibrate writes one)"},
      {"link", text(&Ranks::link), Scope::run, kWithRanks,
       "Latency and bandwidth of messages on the virtual or modelled clock: " + list(link_names()) +
           ", or LATENCY,BANDWIDTH; with several nodes inner=LINK,outer=LINK,per-node=RANKS, where the ranks of a node "
           "share the outer link"},
      {"transport", word(&Ranks::transport), Scope::run, kWithMessages,
       "How ranks communicate: 'thread' as threads of one process, 'mpi' as processes of mpirun or srun, 'gloo' as "
       "processes of torchrun, 'nccl' with one GPU each"},
      {"reduce", word(&Ranks::reduce), Scope::training, kWithReductions,
       "How gradients are summed: 'ordered' by rank, so that equal runs give equal bytes, or 'native' by the "
       "all-reduce of MPI, Gloo or NCCL, which agrees within 1e-5"},
      {"timeout", real(&Ranks::timeout, 1e-6, kLongestTimeout), Scope::run, kWithRanks,
       "Seconds that a rank waits for another before all ranks give up"},
  };
}

std::vector<Flag> machine() {
  return {
      {"device", text(&Ranks::device), Scope::run, kAll, "cpu, cuda, or either with an index, such as cuda:1"},
      {"threads", whole(&Ranks::threads, 1, kMaxThreads), Scope::run, kAll,
       "Cores per device; results do not depend on their number"},
      {"graph", on_off(&Ranks::cuda_graph), Scope::run, in(1, 2, 3, 4, 5, 6),
       "Launch a training step, or a stage's forward or backward, as a whole: as a recorded CUDA graph"},
      {"tf32", on_off(&Ranks::tf32), Scope::training, kAll,
       "Let a GPU round the factors of matrix products to TF32 (10-bit mantissas) for its tensor cores"},
  };
}

std::vector<Flag> run_and_output(const Chapter& chapter) {
  const std::vector<std::string> bugs = bug_names(chapter.number);
  return {
      {"out", text(&Runs::out), Scope::command, kAll,
       "Folder for config, metrics, trace, weights and checkpoints (none: nothing is written)"},
      {"weights", text(&Training::weights), Scope::command, kAll,
       "Begin with the weights in this safetensors file or folder, under our names or PyTorch's "
       "(docs/reference/names.md)"},
      {"weights-except", text(&Training::weights_except), Scope::command, kAll,
       "Layers that --weights leaves as they are, such as fc for other classes"},
      {"resume", text(&Runs::resume), Scope::command, kAll,
       "Folder of an earlier run: continue from its last checkpoint"},
      {"accept-new-data", on_off(&Runs::accept_new_data), Scope::command, kAll,
       "With --resume: continue even if the data differ from those of the checkpoint"},
      {"explain", on_off(&Runs::explain), Scope::command, kAll,
       "Show what a step does and what it keeps in memory, without training"},
      {"lowered", on_off(&Runs::lowered), Scope::command, kWithSchedules,
       "With --explain: also list sends, receives and reductions in the schedule"},
      {"table-format", word(&Runs::table_format), Scope::command, in(3, 5, 6, 8),
       "With --explain --out: 'pytorch' adds the waits and reductions to schedule_lowered.csv that PyTorch expects"},
      {"profile", on_off(&Runs::profile), Scope::command, kAll, "Show where the time went in the first steps"},
      {"summary", on_off(&Runs::summary), Scope::command, kAll,
       "At the end, show five numbers: step time, idle share, memory per rank, bytes per link, staleness"},
      {"report", on_off(&Runs::report), Scope::command, kAll,
       "At the end, write report.html to the --out folder: a page with timelines, memory, links and curves"},
      {"sample", whole(&Runs::sample, 0, 1 << 20), Scope::command, kAll,
       "At the end, let gpt write this many bytes of text and print them"},
      {"inject", word(&Training::inject, bugs, [=](std::size_t i) { return bug_named(bugs[i]); }), Scope::command,
       in(1, 2, 3, 4, 5, 6, 9),
       "Train with a known bug, to be found (docs/bugs.md); 'list' lists those of this chapter"},
      {"smoke", on_off(&Data::smoke), Scope::training, kAll, "A run of a few seconds on generated data"},
  };
}

}  // namespace

bool Flag::is_offered_by(int chapter) const { return chapters.empty() || includes_chapter(chapters, chapter); }

bool Flag::shapes_training(const Settings& settings) const {
  const bool is_asynchronous = settings.pipeline.versions.has_value();
  switch (scope) {
    case Scope::training:
      return true;
    case Scope::asynchronous_training:
      return is_asynchronous;
    case Scope::rank_dependent_training:
      return is_asynchronous || settings.data_parallel.compress != CompressionKind::none;
    case Scope::scheduled_training:
      return settings.training.lr_schedule != RateShape::constant;
    case Scope::batch_parts:
      return !shares_batches(settings);
    default:
      return false;
  }
}

std::vector<Flag> flag_table(const Chapter& chapter) {
  const std::pair<const char*, std::vector<Flag>> groups[] = {{"Data", data()},
                                                              {"Model", model()},
                                                              {"Training", optimization()},
                                                              {"Pipeline", number_of_ranks()},
                                                              {"Data parallel", data_parallel()},
                                                              {"Pipeline", pipeline(chapter)},
                                                              {"Ranks", ranks()},
                                                              {"Machine", machine()},
                                                              {"Run", run_and_output(chapter)}};
  std::vector<Flag> all;
  for (const auto& [group, flags] : groups) {
    for (const Flag& flag : flags) {
      all.push_back(flag);
      all.back().group = group;
    }
  }
  return all;
}

const std::vector<Flag>& flag_table() {
  static const std::vector<Flag> table = flag_table(Chapter{});
  return table;
}

const Flag& flag_named(std::string_view name) {
  const std::vector<Flag>& all = flag_table();
  return *std::find_if(all.begin(), all.end(), [&](const Flag& flag) { return flag.name == name; });
}

}  // namespace stagecoach
