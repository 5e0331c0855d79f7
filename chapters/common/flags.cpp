#include "chapters/common/flags.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <iostream>
#include <map>

#include "chapters/common/run_folder.h"
#include "core/error.h"
#include "nn/models.h"

namespace stagecoach {
namespace {

/// Flags that only some chapters honour, each with the reason that the others give.
const std::map<std::string, std::string>& chapter_flags() {
  static const std::map<std::string, std::string> reasons{
      {"microbatches", "this chapter does not cut its batches"},
      {"ranks", "this chapter trains on one device; ranks begin in chapter 2"},
      {"split", "this chapter trains on one device; models are split from chapter 2 on"},
      {"balance", "this chapter trains on one device; models are split from chapter 2 on"},
      {"clock", "this chapter trains on one device, by the wall clock; ranks begin in chapter 2"},
      {"link", "this chapter trains on one device and sends no messages; ranks begin in chapter 2"},
      {"transport", "this chapter trains on one device and sends no messages; ranks begin in chapter 2"},
      {"timeout", "this chapter trains on one device and waits for nobody; ranks begin in chapter 2"},
      {"recompute", "this chapter runs no pipeline; pipelines begin in chapter 3"},
      {"schedule", "this chapter runs no pipeline; pipelines begin in chapter 3"},
      {"chunks", "this chapter runs no pipeline; chunks belong to chapter 5"},
      {"explain", "this chapter has no schedule to explain"},
  };
  return reasons;
}

/// Refuses flags that exist in other chapters by saying where; CLI11 would only call them unknown.
void refuse_foreign_flags(int argc, const char* const* argv, const Chapter& chapter) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--", 0) != 0) {
      continue;
    }
    const std::string name = argument.substr(2, argument.find('=') - 2);
    const auto reason = chapter_flags().find(name);
    if (reason != chapter_flags().end() && !chapter.flags.contains(name)) {
      throw UsageError(fmt::format("--{} is not for {}: {}", name, chapter.program, reason->second));
    }
  }
}

/// CLI11 would take "-1" for the largest number.
std::string is_seed(const std::string& text) {
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  const bool good = error == std::errc() && end == text.data() + text.size();
  return good ? "" : fmt::format("{} is no whole number from 0 to 2^64 - 1", text);
}

std::string is_not_negative(const std::string& text) {
  return text.rfind('-', 0) == 0 ? fmt::format("{} is negative", text) : "";
}

/// Every flag of `chapter`, bound to `s`.
void add_flags(CLI::App& app, const Chapter& chapter, Settings& s) {
  const auto offer = [&](const std::string& name, auto& value, const std::string& help, const char* group) {
    return app.add_option("--" + name, value, help)->group(group)->capture_default_str();
  };
  const CLI::Range positive(std::int64_t{1}, std::int64_t{1} << 30, "INT >= 1");
  const char* const data = "Data";
  offer("data", s.data, "CIFAR-10 in its binary layout, a folder of pictures, or 'generated'", data);
  app.add_flag("--augment", s.augment, "Crop and flip the training pictures at random")->group(data);
  offer("image-size", s.image_size, "Resize the pictures to this many pixels (0: what the model is made for)", data)
      ->check(CLI::Range(0, 1024));

  const char* const model = "Model";
  offer("model", s.model, "The model", model)->check(CLI::IsMember(model_names()));
  offer("head", s.head, "What the model ends with: 'softmax' adds one before the loss", model)
      ->check(CLI::IsMember({"logits", "softmax"}));

  const char* const training = "Training";
  offer("epochs", s.epochs, "How often to go through the data, in all", training)->check(positive);
  offer("batch-size", s.batch_size, "Pictures between two optimizer steps", training)->check(positive);
  if (chapter.flags.contains("microbatches")) {
    offer("microbatches", s.microbatches, "Parts of a batch that run one after the other, adding their gradients",
          training)
        ->check(positive);
  }
  offer("optimizer", s.optimizer, "sgd or adam", training)->check(CLI::IsMember({"sgd", "adam"}));
  offer("lr", s.lr, "Learning rate (0: 0.01 for sgd, 0.001 for adam)", training)->check(is_not_negative);
  app.add_option("--momentum", s.momentum, "Momentum of sgd (0.9 if not given)")
      ->group(training)
      ->check(CLI::Range(0.0, 1.0));
  offer("weight-decay", s.weight_decay, "L2 weight decay", training)->check(is_not_negative);
  offer("seed", s.seed, "Fixes the initial weights, the order of the data, and the augmentation", training)
      ->check(is_seed);

  const char* const machine = "Machine";
  offer("device", s.device, "cpu, cuda, or one by its index such as cuda:1", machine);
  offer("threads", s.threads, "Cores that the device uses; no result depends on it", machine)
      ->check(CLI::Range(1, 1024));

  app.add_flag("--graph,!--no-graph", s.graph, "Record a training step and give it to a GPU at once")->group(machine);
  app.add_flag("--tf32", s.tf32, "Let a GPU round the factors of matrix products to 10 bits, for its tensor cores")
      ->group(machine);

  const char* const run = "Run";
  offer("out", s.out, "Folder for config, metrics, trace, weights and checkpoint (none: nothing is written)", run);
  offer("resume", s.resume, "Folder of an earlier run: go on from its last checkpoint", run);
  if (chapter.flags.contains("explain")) {
    app.add_flag("--explain", s.explain, "Show what a step does and keeps, and do not train")->group(run);
  }
  app.add_flag("--profile", s.profile, "Show where the time went in the first steps")->group(run);
  app.add_flag("--smoke", s.smoke, "A run of a few seconds on generated data")->group(run);
}

/// The older run's settings, changed by the flags that were given now.
Settings merged_with_resumed(const CLI::App& app, const Chapter& chapter, const Settings& given) {
  const Settings older = read_settings(given.resume);
  if (older.program != chapter.program) {
    throw UsageError(fmt::format("--resume {}: this run was made by {}", given.resume, older.program));
  }
  Settings merged = merge(given, older, [&](const std::string& name) {
    const CLI::Option* option = app.get_option_no_throw("--" + name);
    return option != nullptr && option->count() > 0;
  });
  if (merged.out.empty()) {
    merged.out = merged.resume;
  }
  return merged;
}

void fill_in_defaults(Settings& s) {
  if (s.smoke) {
    s.data = "generated";
  }
  if (s.lr == 0) {
    s.lr = s.optimizer == "adam" ? 0.001 : 0.01;
  }
  if (s.momentum < 0) {
    s.momentum = s.optimizer == "sgd" ? 0.9 : 0;
  }
  if (s.image_size == 0) {
    s.image_size = default_image_size(s.model);
  }
}

}  // namespace

Settings parse_flags(int argc, const char* const* argv, const Chapter& chapter) {
  refuse_foreign_flags(argc, argv, chapter);
  Settings settings;
  settings.program = chapter.program;
  CLI::App app(chapter.title, chapter.program);
  app.footer("Example:\n  " + chapter.example);
  add_flags(app, chapter, settings);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    throw HelpShown{};
  } catch (const CLI::ParseError& error) {
    throw UsageError(fmt::format("{}; {} --help lists the flags", error.what(), chapter.program));
  }
  for (const auto& [flag, value] : {std::pair("--resume", &settings.resume), std::pair("--out", &settings.out)}) {
    if (app.count(flag) > 0 && value->empty()) {
      throw UsageError(fmt::format("{} is empty; name a folder", flag));
    }
  }
  if (settings.smoke && app.count("--data") > 0) {
    throw UsageError("--smoke runs on a few generated pictures and takes no --data");
  }
  if (settings.smoke && app.count("--epochs") == 0) {
    settings.epochs = settings.model == "convnet" ? 2 : 1;
  }
  if (!std::isfinite(settings.lr) || !std::isfinite(settings.weight_decay) || !std::isfinite(settings.momentum)) {
    throw UsageError("--lr, --momentum and --weight-decay must be finite numbers");
  }
  if (!settings.resume.empty()) {
    settings = merged_with_resumed(app, chapter, settings);
  }
  fill_in_defaults(settings);
  if (!settings.resume.empty()) {
    const std::string changed = first_difference(settings, read_settings(settings.resume));
    if (!changed.empty()) {
      throw UsageError(
          fmt::format("--{} differs from the run in {}; --resume goes on with the same training, so leave "
                      "the flag out, or start a new run without --resume",
                      changed, settings.resume));
    }
  }
  return settings;
}

}  // namespace stagecoach
