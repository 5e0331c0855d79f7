#pragma once
/// @file
/// What a run was told to do: the values of the flags. flag_table.cpp has one row for each of them.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "chapters/common/choices.h"
#include "chapters/common/parsed.h"
#include "core/device.h"
#include "datasets/image.h"
#include "parallel/comm/link.h"
#include "parallel/data_parallel/buckets.h"
#include "parallel/launch/mesh.h"
#include "parallel/pipeline/split.h"
#include "parallel/schedule/lower.h"

namespace stagecoach {

struct Chapter;

/// Where the images come from.
struct DataSettings {
  std::string source = "generated";
  std::int64_t max_megapixels = kMaxPixels / 1'000'000;  ///< of an image in a folder of images; larger ones are refused
  bool smoke = false;                                    ///< a few generated images
};

/// What is trained, and how.
struct TrainingSettings {
  std::string model = "convnet";
  Head head = Head::logits;
  std::int64_t image_size = 0;  ///< 0: what the model is made for
  bool augment = false;
  std::int64_t epochs = 10;
  std::int64_t batch_size = 64;
  std::int64_t microbatches = 1;
  OptimizerKind optimizer = OptimizerKind::sgd;
  double lr = 0;         ///< 0: 0.01 for sgd, 0.001 for adam
  double momentum = -1;  ///< -1: 0.9 for sgd, 0 for adam
  double weight_decay = 0;
  std::int64_t lr_warmup = 0;    ///< batches in which the learning rate rises
  std::int64_t lr_discount = 0;  ///< batches in which that of delayed stages is lower
  std::uint64_t seed = 0;
};

/// How a model is cut into stages, and in which order they work.
struct PipelineSettings {
  std::string schedule = "";              ///< a name, or a file with a table; empty: the chapter's own loop
  int chunks = 1;                         ///< stages per rank; 0: two where the schedule takes several
  int group = 0;                          ///< micro-batches of the interleaved schedule's group; 0: as many as ranks
  std::optional<Versions> versions = {};  ///< the weights of an asynchronous pipeline; none: it is synchronous
  bool version_check = true;
  Parsed<replicas_from_text> replicas = {};  ///< ranks per stage; empty: one each, or as --balance says
  Parsed<split_from_text> split = {};        ///< layers per stage; empty: as --balance says
  Balance balance = Balance::time;
  std::string plan = "";       ///< file to read the layers' profile from, and the stages
  std::string save_plan = "";  ///< file to write them to
  bool recompute = false;
  Parsed<receives_from_text> receives = "ahead";
};

/// How ranks share batches, and sum their gradients.
struct DataParallelSettings {
  std::optional<DataParallelMode> mode = {};             ///< none: ranks do not share batches
  Parsed<mesh_from_text> mesh = {};                      ///< empty: all ranks share data
  std::uint64_t bucket_size = BucketCaps{}.rest;         ///< bytes
  std::uint64_t first_bucket_size = BucketCaps{}.first;  ///< bytes
  bool find_unused = false;
  CompressionKind compress = CompressionKind::none;
  bool sync_batch_norm = false;

  BucketCaps caps() const { return {first_bucket_size, bucket_size}; }
};

/// The ranks, their devices, and what connects them.
struct WorldSettings {
  int ranks = 1;
  ClockKind clock = ClockKind::wall;
  Parsed<link_from_text> link = "none";
  Transport transport = Transport::thread;
  ReduceKind reduce = ReduceKind::ordered;
  double timeout = 30;  ///< seconds
  Parsed<parse_device> device = "cpu";
  int threads = 1;
  bool graph = true;  ///< a GPU is given a whole step at once
  bool tf32 = false;
};

/// What a run writes and shows.
struct RunSettings {
  std::string out = "";
  std::string resume = "";
  bool explain = false;
  bool lowered = false;
  bool ledger = false;
  bool profile = false;
};

struct Settings {
  std::string program = "";  ///< "ch01_single_device"
  int chapter = 0;           ///< its number: which flags it offers
  DataSettings data = {};
  TrainingSettings training = {};
  PipelineSettings pipeline = {};
  DataParallelSettings data_parallel = {};
  WorldSettings world = {};
  RunSettings run = {};
};

/// The settings as a table for people, with a heading; without flags that the program does not offer.
std::string settings_table(const Settings& settings);
/// All settings except folders and what is only shown, as a JSON object (config.json).
std::string to_json(const Settings& settings);
/// Only those that shape the training: equal texts train alike.
std::string training_json(const Settings& settings);
/// Whether a training with one training_json goes on as one with the other. An older version may have saved fewer
/// settings; these had what is the default now.
bool trains_alike(const std::string& saved, const std::string& now);
/// Reads to_json's text about a run of `chapter`. A setting that it lacks has its default: an older version wrote it.
/// Throws DataError that names `where`, and the setting, when it is damaged or a value is one that its flag would
/// refuse; UsageError when another program made the run.
Settings settings_from_json(const std::string& text, const std::string& where, const Chapter& chapter);
/// `given`, but with the values of `older` for all flags (named without dashes) that were not given.
Settings merge(Settings given, const Settings& older, const std::function<bool(const std::string& flag)>& was_given);
/// The flag (without dashes) whose value differs between two runs that should train alike, or "".
std::string first_difference(const Settings& a, const Settings& b);

}  // namespace stagecoach
