#pragma once
/// @file
/// What a run was asked to do: the values of the flags.

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "core/device.h"
#include "datasets/image.h"
#include "parallel/data_parallel/buckets.h"

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
  std::string head = "logits";
  std::int64_t image_size = 0;  ///< 0: what the model is made for
  bool augment = false;
  std::int64_t epochs = 10;
  std::int64_t batch_size = 64;
  std::int64_t microbatches = 1;
  std::string optimizer = "sgd";
  double lr = 0;         ///< 0: 0.01 for sgd, 0.001 for adam
  double momentum = -1;  ///< -1: 0.9 for sgd, 0 for adam
  double weight_decay = 0;
  std::int64_t lr_warmup = 0;    ///< batches in which the learning rate rises
  std::int64_t lr_discount = 0;  ///< batches in which that of delayed stages is lower
  std::uint64_t seed = 0;
};

/// How a model is cut into stages, and in which order they work.
struct PipelineSettings {
  std::string schedule = "";  ///< a name, or a file with a table; empty: the chapter's own loop
  int chunks = 1;             ///< stages per rank; 0: two where the schedule takes several
  int group = 0;              ///< micro-batches of the interleaved schedule's group; 0: as many as ranks
  std::string versions = "";  ///< the policy of weight versions of an asynchronous pipeline; empty: not one
  bool version_check = true;
  std::string replicas = "";  ///< ranks per stage; empty: one each, or as --balance says
  std::string split = "";     ///< layers per stage; empty: as --balance says
  std::string balance = "time";
  std::string plan = "";       ///< file to read the layers' profile from, and the stages
  std::string save_plan = "";  ///< file to write them to
  bool recompute = false;
  std::string receives = "ahead";
};

/// How ranks share batches, and sum their gradients.
struct DataParallelSettings {
  std::string mode = "";                                 ///< the strategy; empty: ranks do not share batches
  std::string mesh = "";                                 ///< ranks that share data, and of a pipeline; empty: all share
  std::uint64_t bucket_size = BucketCaps{}.rest;         ///< bytes
  std::uint64_t first_bucket_size = BucketCaps{}.first;  ///< bytes
  bool find_unused = false;
  std::string compress = "none";
  bool sync_batch_norm = false;
};

/// The ranks, their devices, and what connects them.
struct WorldSettings {
  int ranks = 1;
  std::string clock = "wall";
  std::string link = "none";
  std::string transport = "thread";
  std::string reduce = "ordered";
  double timeout = 30;  ///< seconds
  std::string device = "cpu";
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
  std::string program = "";                  ///< "ch01_single_device"
  std::set<std::string> chapter_flags = {};  ///< those of flags_of_some_chapters() that the program offers
  DataSettings data = {};
  TrainingSettings training = {};
  PipelineSettings pipeline = {};
  DataParallelSettings data_parallel = {};
  WorldSettings world = {};
  RunSettings run = {};
};

/// Flags that only some chapters honour, without dashes, each with the reason that the others give.
const std::map<std::string, std::string>& flags_of_some_chapters();

/// The settings as a table for people, with a heading; without flags that the program does not offer.
std::string settings_table(const Settings& settings);
/// All settings but the folders and what is only shown, as a JSON object (config.json).
std::string to_json(const Settings& settings);
/// Only those that shape the training: equal texts train alike.
std::string training_json(const Settings& settings);
/// Reads to_json's text about a run of `chapter`. Throws DataError that names `where`, and the setting, when it is
/// damaged or a value is one that its flag would refuse; UsageError when another program made the run.
Settings settings_from_json(const std::string& text, const std::string& where, const Chapter& chapter);
/// `given`, but with the values of `older` for all flags (named without dashes) that were not given.
Settings merge(Settings given, const Settings& older, const std::function<bool(const std::string& flag)>& was_given);
/// The flag (without dashes) whose value differs between two runs that should train alike, or "".
std::string first_difference(const Settings& a, const Settings& b);

}  // namespace stagecoach
