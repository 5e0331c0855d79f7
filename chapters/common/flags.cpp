#include "chapters/common/flags.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <iostream>
#include <utility>

#include "chapters/common/bounds.h"
#include "chapters/common/flag_rules.h"
#include "chapters/common/run_folder.h"
#include "core/error.h"
#include "parallel/comm/link.h"
#include "parallel/data_parallel/compression.h"
#include "parallel/launch/launch_environment.h"
#include "parallel/schedule/schedule_kinds.h"
#include "parallel/schedule/versions.h"

namespace stagecoach {
namespace {

/// Refuses flags that exist in other chapters by saying where; CLI11 would only call them unknown.
void refuse_foreign_flags(int argc, const char* const* argv, const Chapter& chapter) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--", 0) != 0) {
      continue;
    }
    const std::string name = argument.substr(2, argument.find('=') - 2);
    const auto reason = flags_of_some_chapters().find(name);
    if (reason != flags_of_some_chapters().end() && !chapter.flags.contains(name)) {
      throw UsageError(fmt::format("--{} is not for {}: {}", name, chapter.program, reason->second));
    }
  }
}

/// Adds the flags of a chapter, each bound to a setting.
class FlagAdder {
 public:
  FlagAdder(CLI::App& app, const Chapter& chapter, const Bounds& bounds, Settings& settings)
      : app_(app), chapter_(chapter), s_(settings), bounds_(bounds) {}

  void add_data() {
    group_ = "Data";
    offer("data", s_.data.source, "CIFAR-10 in its binary layout, a folder of pictures, or 'generated'");
    offer("max-megapixels", s_.data.max_megapixels, "Refuse larger files of images, before they are decoded");
    offer_switch("augment", s_.training.augment, "Crop and flip the training pictures at random");
    offer("image-size", s_.training.image_size,
          "Resize the pictures to this many pixels (0: what the model is made for)");
  }

  void add_model() {
    group_ = "Model";
    offer("model", s_.training.model, "The model");
    offer("head", s_.training.head, "What the model ends with: 'softmax' adds one before the loss");
  }

  void add_training() {
    group_ = "Training";
    offer("epochs", s_.training.epochs, "How often to go through the data, in all");
    offer("batch-size", s_.training.batch_size, "Pictures between two optimizer steps");
    if (has("microbatches")) {
      offer("microbatches", s_.training.microbatches, "Parts of a batch, whose gradients are added");
    }
    offer("optimizer", s_.training.optimizer, "sgd or adam");
    offer("lr", s_.training.lr, "Learning rate (0: 0.01 for sgd, 0.001 for adam)");
    bound("momentum", app_.add_option("--momentum", s_.training.momentum, "Momentum of sgd (0.9 if not given)"));
    offer("weight-decay", s_.training.weight_decay, "L2 weight decay");
    if (has("lr-warmup")) {
      offer("lr-warmup", s_.training.lr_warmup, "Batches in which the learning rate rises from 0");
      offer("lr-discount", s_.training.lr_discount,
            "Batches in which a stage's learning rate is divided by a power of its delay + 1 that falls to 0");
    }
    offer("seed", s_.training.seed, "Fixes the initial weights, the order of the data, and the augmentation");
  }

  void add_pipeline() {
    group_ = "Pipeline";
    if (has("ranks")) {
      offer("ranks", s_.world.ranks, "Devices that train together");
    }
    if (has("schedule")) {
      offer("schedule", s_.pipeline.schedule,
            joined(chapter_.schedules) + (has("versions") ? "" : ", or a file with a table of actions"));
    }
    if (has("chunks")) {
      offer("chunks", s_.pipeline.chunks, "Stages per rank (0: two where the schedule takes several)");
    }
    if (has("group")) {
      offer("group", s_.pipeline.group,
            "Micro-batches that pass a chunk before the next one's turn (0: as many as ranks)");
    }
    if (has("versions")) {
      offer("versions", s_.pipeline.versions, "Which weights a micro-batch meets: " + joined(version_names()));
      app_.add_flag("--version-check,!--no-version-check", s_.pipeline.version_check,
                    "Refuse a backward whose weights have changed since its forward")
          ->group(group_);
      offer_switch("ledger", s_.run.ledger, "Print which version each forward and backward uses, and the delays");
      offer("replicas", s_.pipeline.replicas, "Ranks a stage, such as 2,1,1 (none: one each, or as --balance says)");
    }
    if (has("split")) {
      offer("split", s_.pipeline.split, "Layers a stage, such as 5,4,3 (none: as --balance says)");
      const std::string more = has("replicas") ? "; 'pipedream' chooses stages and replicas for the link" : "";
      offer("balance", s_.pipeline.balance, "Give the stages equal layers, parameters, or measured times" + more);
    }
    if (has("plan")) {
      offer("plan", s_.pipeline.plan,
            "File of --save-plan: its measured layers; and its stages, unless --balance is given");
      offer("save-plan", s_.pipeline.save_plan, "Write the measured layers and the stages to a file");
    }
    if (has("recompute")) {
      offer_switch("recompute", s_.pipeline.recompute,
                   "Keep only the stages' inputs, and run forward again before backward");
    }
    if (has("receives")) {
      offer("receives", s_.pipeline.receives,
            "When receives are posted: 'at-use', 'ahead' (at most 4 per rank that are not yet used; more where sends "
            "wait for "
            "their receivers), or at most so many");
    }
  }

  void add_data_parallel() {
    group_ = "Data parallel";
    if (has("mode")) {
      offer(
          "mode", s_.data_parallel.mode,
          "How ranks share a batch. Gradients are summed: 'single' all at once behind the backward, 'parameter' each "
          "as it comes, 'buckets' some together; the weights are owned: 'central' by one rank that gathers gradients, "
          "'replicate' by one that sends copies for every batch");
      offer("mesh", s_.data_parallel.mesh,
            "Ranks that share data and ranks of a pipeline, such as dp=2,pp=2 (none: all share data)");
      offer("bucket-size", s_.data_parallel.bucket_size,
            "Bytes at which a bucket of gradients is closed; with units also 64KiB");
      offer("first-bucket-size", s_.data_parallel.first_bucket_size, "The same for the first bucket");
      offer_switch("find-unused", s_.data_parallel.find_unused,
                   "Look in each graph for parameters that get no gradient");
      offer("compress", s_.data_parallel.compress, "How a bucket travels: " + joined(compression_names()));
      offer_switch("sync-batch-norm", s_.data_parallel.sync_batch_norm,
                   "Batch norm over the whole batch, not over a rank's part");
    }
  }

  void add_ranks() {
    group_ = "Ranks";
    if (has("clock")) {
      offer("clock", s_.world.clock, "'virtual': each rank's own computing time, as if it had a device to itself");
    }
    if (has("link")) {
      offer("link", s_.world.link,
            "What messages take on the virtual clock: " + joined(link_names()) + ", or LATENCY,BANDWIDTH");
    }
    if (has("transport")) {
      offer("transport", s_.world.transport,
            "How ranks talk: as threads of one process, as processes of mpirun or srun by MPI, or with a GPU each by "
            "NCCL");
    }
    if (has("reduce")) {
      offer("reduce", s_.world.reduce,
            "How gradients are summed: 'ordered' rank by rank, so that equal runs give equal bytes, or 'native' by "
            "MPI's or NCCL's own all-reduce, which promises 1e-5");
    }
    if (has("timeout")) {
      offer("timeout", s_.world.timeout, "Seconds that a rank waits for another before all give up");
    }
  }

  void add_machine() {
    group_ = "Machine";
    offer("device", s_.world.device, "cpu, cuda, or one by its index such as cuda:1");
    offer("threads", s_.world.threads, "Cores that each device uses; no result depends on it");
    if (has("graph")) {
      app_.add_flag("--graph,!--no-graph", s_.world.graph, "Record a training step and give it to a GPU at once")
          ->group(group_);
    }
    offer_switch("tf32", s_.world.tf32,
                 "Let a GPU round the factors of matrix products to 10 bits, for its tensor cores");
  }

  void add_run() {
    group_ = "Run";
    offer("out", s_.run.out, "Folder for config, metrics, trace, weights and checkpoint (none: nothing is written)");
    offer("resume", s_.run.resume, "Folder of an earlier run: go on from its last checkpoint");
    if (has("explain")) {
      offer_switch("explain", s_.run.explain, "Show what a step does and keeps, and do not train");
    }
    if (has("lowered")) {
      offer_switch("lowered", s_.run.lowered,
                   "With --explain: list sends, receives and reductions in the schedule too");
    }
    offer_switch("profile", s_.run.profile, "Show where the time went in the first steps");
    offer_switch("smoke", s_.data.smoke, "A run of a few seconds on generated data");
  }

 private:
  static std::string joined(const std::vector<std::string>& names) { return fmt::format("{}", fmt::join(names, ", ")); }
  bool has(const char* flag) const { return chapter_.flags.contains(flag); }
  template <class T>
  void offer(const std::string& name, T& value, const std::string& help) {
    bound(name, app_.add_option("--" + name, value, help)->capture_default_str());
  }
  /// CLI11's own numbers would take "010" for 8, and " -1" for the largest.
  void bound(const std::string& name, CLI::Option* option) {
    option->group(group_)->transform(CLI::Validator(
        [&bounds = bounds_, name](std::string& text) { return bounds.check(name, text); }, bounds_.summary(name)));
  }
  void offer_switch(const std::string& name, bool& value, const std::string& help) {
    app_.add_flag("--" + name, value, help)->group(group_);
  }

  CLI::App& app_;
  const Chapter& chapter_;
  Settings& s_;
  const Bounds& bounds_;
  std::string group_;
};

/// What each schedule of --schedule is, one line each; empty for a chapter with one order of work.
std::string schedules_help(const Chapter& chapter) {
  std::string help;
  for (const std::string& name : chapter.schedules) {
    const ScheduleKind* kind = find_schedule(name);
    help += fmt::format("  {:<14} {}\n", name, kind == nullptr ? "the chapter's own loop" : kind->summary);
  }
  return help.empty() ? "" : "Schedules:\n" + help + "\n";
}

/// Every flag of `chapter`, bound to `settings`. While `app` parses, `bounds` must be there.
void add_flags(CLI::App& app, const Chapter& chapter, const Bounds& bounds, Settings& settings) {
  FlagAdder adder(app, chapter, bounds, settings);
  adder.add_data();
  adder.add_model();
  adder.add_training();
  adder.add_pipeline();
  adder.add_data_parallel();
  adder.add_ranks();
  adder.add_machine();
  adder.add_run();
}

/// Throws DataError where the settings of an older run contradict each other: no run begins so.
void require_whole(Settings older, const Settings& given, const WasGiven& was_given, const Chapter& chapter) {
  older.run.resume = given.run.resume;
  if (was_given("schedule")) {
    older.pipeline.schedule = given.pipeline.schedule;  // the file of the older one may be gone
  }
  try {
    require_consistent(chapter, older);
  } catch (const UsageError& error) {
    throw DataError(fmt::format("{}/config.json: its settings do not fit together ({}); was it changed?",
                                given.run.resume, error.what()));
  }
}

/// The older run's settings, changed by the flags that were given now.
Settings merged_with_resumed(const WasGiven& was_given, const Chapter& chapter, const Settings& given) {
  const Settings older = read_settings(given.run.resume, chapter);
  require_whole(older, given, was_given, chapter);
  Settings merged = merge(given, older, was_given);
  if (was_given("schedule") && !was_given("chunks")) {
    merged.pipeline.chunks = chapter.defaults.pipeline.chunks;  // the older run's were for its schedule
  }
  const bool synchronous = merged.pipeline.versions.empty();  // else the stages are part of the training
  if (synchronous && (was_given("ranks") || was_given("chunks") || was_given("schedule") || was_given("balance")) &&
      !was_given("split")) {
    merged.pipeline.split.clear();
  }
  if (merged.run.out.empty()) {
    merged.run.out = merged.run.resume;
  }
  return merged;
}

}  // namespace

Settings parse_flags(int argc, const char* const* argv, const Chapter& chapter) {
  refuse_foreign_flags(argc, argv, chapter);
  Settings settings = chapter.defaults;
  settings.program = chapter.program;
  settings.chapter_flags = chapter.flags;
  if (!chapter.schedules.empty()) {
    settings.pipeline.schedule = chapter.schedules.front();
  }
  CLI::App app(chapter.title, chapter.program);
  app.footer(schedules_help(chapter) + "Example:\n  " + chapter.example);
  const Bounds bounds(chapter);
  add_flags(app, chapter, bounds, settings);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    throw HelpShown{};
  } catch (const CLI::ParseError& error) {
    throw UsageError(fmt::format("{}; {} --help lists the flags", error.what(), chapter.program));
  }
  const auto was_given = [&](const std::string& name) {
    const CLI::Option* option = app.get_option_no_throw("--" + name);
    return option != nullptr && option->count() > 0;
  };
  for (const auto& [flag, value] : {std::pair("resume", &settings.run.resume),
                                    {"out", &settings.run.out},
                                    {"data", &settings.data.source},
                                    {"plan", &settings.pipeline.plan},
                                    {"save-plan", &settings.pipeline.save_plan}}) {
    if (was_given(flag) && value->empty()) {
      throw UsageError(fmt::format("--{} is empty; name a file or folder, or leave the flag out", flag));
    }
  }
  if (settings.data.smoke && app.count("--data") > 0) {
    throw UsageError("--smoke runs on a few generated pictures and takes no --data");
  }
  if (settings.data.smoke && app.count("--epochs") == 0) {
    settings.training.epochs = settings.training.model == "convnet" ? 2 : 1;
  }
  follow_launcher(settings, chapter, was_given);
  // What is decided without a flag does not come from an older run.
  const bool launcher_decides = launch_environment() && settings.world.transport != "thread";
  const auto is_decided = [&](const std::string& name) {
    return was_given(name) || name == "transport" || (name == "ranks" && launcher_decides);
  };
  if (!settings.run.resume.empty()) {
    settings = merged_with_resumed(is_decided, chapter, settings);
    settings.chapter_flags = chapter.flags;
  }
  choose_transport(settings, was_given);
  fill_in_defaults(settings, is_decided);
  if (!settings.run.resume.empty()) {
    const std::string changed = first_difference(settings, read_settings(settings.run.resume, chapter));
    if (!changed.empty()) {
      throw UsageError(
          fmt::format("--{} differs from the run in {}; --resume goes on with the same training, so leave "
                      "the flag out, or start a new run without --resume",
                      changed, settings.run.resume));
    }
  }
  require_consistent(chapter, settings);
  if (settings.run.explain && !is_rank_zero()) {
    settings.run.out.clear();  // rank 0's files say it all
  }
  return settings;
}

}  // namespace stagecoach
