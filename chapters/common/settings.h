#pragma once
/// @file
/// The settings of a run: the values of the flags. flag_table.cpp has one row per flag.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "chapters/common/bugs.h"
#include "chapters/common/choices.h"
#include "chapters/common/parsed.h"
#include "core/device.h"
#include "datasets/background.h"
#include "datasets/image.h"
#include "parallel/comm/network.h"
#include "parallel/data_parallel/buckets.h"
#include "parallel/launch/mesh.h"
#include "parallel/pipeline/split.h"
#include "parallel/schedule/lower.h"

namespace stagecoach {

struct Chapter;

/// Where the images, or the text, come from.
struct DataSettings {
  std::string source = "generated";
  std::int64_t max_megapixels = kMaxPixels / 1'000'000;     ///< of each image file in a folder; larger ones are refused
  Parsed<background_color_from_text> background = "white";  ///< what transparent pixels are laid on
  bool smoke = false;                                       ///< a few generated images
};

/// The model, and how it is trained.
struct TrainingSettings {
  std::string model = "convnet";
  Head head = Head::logits;
  // 0: the model's default, or that the model has none
  std::int64_t image_size = 0;
  std::int64_t depth = 0;
  std::int64_t width = 0;
  std::int64_t heads = 0;
  std::int64_t context = 0;
  double dropout = 0;  ///< probability
  bool tie_head = false;
  bool augment = false;
  std::int64_t epochs = 10;
  std::int64_t batch_size = 64;
  std::int64_t microbatches = 1;
  std::int64_t sum_groups = 1;  ///< of micro-batches, whose gradients are added up by themselves first
  OptimizerKind optimizer = OptimizerKind::sgd;
  double lr = 0;         ///< 0: 0.001 for adam and adamw, 0.01 for the others
  double momentum = -1;  ///< -1: 0.9 for sgd, 0 for the others
  double weight_decay = 0;
  Decay decay = Decay::all;
  double clip_norm = 0;  ///< of the gradients; 0: they are not clipped
  RateShape lr_schedule = RateShape::constant;
  std::int64_t lr_warmup = 0;    ///< batches during which the learning rate rises
  std::int64_t lr_discount = 0;  ///< batches during which the rate of delayed stages is lower
  std::uint64_t seed = 0;
  std::int64_t tensor_slices = 1;  ///< in which layers are computed: as many as tensor-parallel ranks, or on one device
  bool sequence_parallel = false;  ///< the slices share the tokens
  bool class_parallel = false;     ///< the last layer is cut by classes
  std::string weights = "";        ///< the file that the training begins with; empty: the weights are drawn
  std::string weights_except = "";  ///< layers whose weights are drawn nevertheless: "fc,conv1"
  Bug inject = Bug::none;           ///< to be found by students (bugs.h)
};

/// How a model is split into stages, and in which order the stages work.
struct PipelineSettings {
  std::string schedule = "";              ///< a name, or a file with a table; empty: the chapter's own loop
  int chunks = 1;                         ///< stages per rank; 0: two where the schedule takes several
  int group = 0;                          ///< micro-batches per group of the interleaved schedule; 0: as many as ranks
  std::optional<Versions> versions = {};  ///< weight versions of an asynchronous pipeline; none: it is synchronous
  bool version_check = true;
  Parsed<replicas_from_text> replicas = {};  ///< ranks per stage; empty: one each, or chosen by --balance
  Parsed<split_from_text> split = {};        ///< layers per stage; empty: chosen by --balance
  Balance balance = Balance::time;
  std::string profile_file = "";  ///< with what each layer costs; empty: it is measured
  bool recompute = false;
  Parsed<receives_from_text> receives = "ahead";
  ControllerForm form = ControllerForm::pipelined;
  CopyStream copy_stream = CopyStream::own;
  bool synchronous = false;
  Parsed<splits_from_text> splits = "1,2,4,8";  ///< micro-batches per batch, one after another
};

/// How replicas of the model share batches, and sum their gradients.
struct ReplicaSettings {
  std::optional<DataParallelMode> mode = {};  ///< none: ranks do not share batches
  Parsed<mesh_from_text> mesh = {};           ///< empty: all ranks share data
  Parsed<rank_order_from_text> rank_order = "tp-dp-pp";
  bool overlap = false;                                  ///< of sums of tensor-parallel ranks with their computation
  std::uint64_t bucket_size = BucketCaps{}.rest;         ///< bytes
  std::uint64_t first_bucket_size = BucketCaps{}.first;  ///< bytes
  bool find_unused = false;
  CompressionKind compress = CompressionKind::none;
  bool sync_batch_norm = false;
  // How they keep a part of it each.
  std::optional<Sharded> shard = {};  ///< none: each has all of it
  bool reshard_after_forward = true;
  int prefetch = 1;                          ///< units that are gathered ahead
  Parsed<split_from_text> unit_layers = {};  ///< empty: each layer with parameters begins a unit
  Accumulation accumulation = Accumulation::whole;
  bool by_hand = false;  ///< by the chapter's own code

  BucketCaps caps() const { return {first_bucket_size, bucket_size}; }
};

inline constexpr const char* kDefaultDeviceModel = "h200";

/// The ranks, their devices, and the links between them.
struct WorldSettings {
  int ranks = 1;
  ClockKind clock = ClockKind::wall;
  Parsed<device_model> modelled_device = kDefaultDeviceModel;
  Parsed<network_from_text> link = "none";
  Transport transport = Transport::thread;
  ReduceKind reduce = ReduceKind::ordered;
  double timeout = 30;  ///< seconds
  Parsed<parse_device> device = "cpu";
  int threads = 1;
  std::string cpu_level = "";   ///< of the CPU kernels in use (core/kernels/levels.h); empty on a GPU. No flag sets it.
  bool data_on_device = false;  ///< each rank's device holds the samples, and makes the batches
  bool cuda_graph = true;       ///< on a GPU, a whole step is launched at once
  bool tf32 = false;
};

/// What a run writes and shows.
struct RunSettings {
  std::string out = "";
  std::string resume = "";
  std::string resumed_level = "";  ///< the cpu_level of the run to resume; empty if it is not known
  bool accept_new_data = false;
  std::int64_t sample = 0;  ///< bytes that the model writes at the end
  bool explain = false;
  bool lowered = false;
  TableFormat table_format = TableFormat::stagecoach;
  bool ledger = false;
  bool profile = false;
  bool summary = false;
  bool report = false;
};

struct Settings {
  std::string program = "";  ///< "ch01_single_device"
  std::string command = "";  ///< as a shell reads it; empty if it is not known
  int chapter = 0;           ///< the number of the chapter, which decides what flags it offers
  DataSettings data = {};
  TrainingSettings training = {};
  PipelineSettings pipeline = {};
  ReplicaSettings data_parallel = {};
  WorldSettings world = {};
  RunSettings run = {};
};

/// Returns the settings as a table for people, with a heading; without flags that the program does not offer.
std::string settings_table(const Settings& settings);
/// Returns the settings that are saved, as a JSON object (config.json): all except folders and display options.
std::string config_json(const Settings& settings);
/// Returns only the settings that shape the training, as JSON. Trainings with equal texts have equal results.
std::string training_json(const Settings& settings);
/// Returns whether the ranks can share batches: in chapters 6 and 8.
bool shares_batches(const Settings& settings);
/// Returns in how many parts ranks that share batches compute and sum the gradient of a batch: "D x M" for D
/// data-parallel ranks with M micro-batches each. When D or M is 1, only their product counts, since one device sums
/// the parts of D ranks in the same order: "4" (not with batch norm, whose statistics follow the micro-batches of a
/// rank). Together with the settings in training_json, this decides the bytes of the weights; the pipeline and tensor
/// ranks of the mesh do not.
std::string batch_parts(const Settings& settings);
/// Parses config_json's text about a run of `chapter`. A missing setting has its default, since an older version may
/// have written the text. Throws DataError, which names `where` and the setting, if the text is damaged or has a value
/// that the flag would refuse; throws UsageError if another program made the run.
Settings settings_from_json(const std::string& text, const std::string& where, const Chapter& chapter);
/// Returns the settings of the run in `folder`, which must be a run of `chapter`. Throws as settings_from_json does,
/// and throws DataError if there is no such run.
Settings read_settings(const std::filesystem::path& folder, const Chapter& chapter);
/// Returns `given`, with the values of `older` for all saved flags (named without dashes) that were not given.
Settings merge(Settings given, const Settings& older, const std::function<bool(const std::string& flag)>& was_given);
/// Returns the first flag (without dashes) that shapes the training and differs between two runs, or "".
std::string first_difference(const Settings& a, const Settings& b);

}  // namespace stagecoach
