#include "chapters/advise/options.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "chapters/common/bounds.h"
#include "chapters/common/flag_rules.h"
#include "chapters/common/flag_table.h"
#include "chapters/common/flags.h"
#include "chapters/common/open.h"
#include "core/base/throw_if.h"
#include "parallel/comm/network.h"
#include "parallel/schedule/schedule_kinds.h"

namespace stagecoach {
namespace {

/// The flags of the chapters that describe the question.
constexpr const char* kShared[] = {"model",    "depth",        "width",      "heads",     "context",
                                   "tie-head", "image-size",   "batch-size", "optimizer", "momentum",
                                   "ranks",    "device-model", "link"};

void add_sizes(CLI::App& app, AdviseOptions& options) {
  const auto size = [&](const char* name, std::optional<int>& value, const char* help) {
    app.add_option(name, value, help)->check(CLI::Range(1, kMaxPlannedRanks))->group("Fixed instead of searched");
  };
  size("--dp", options.data, "Data-parallel ranks");
  size("--pp", options.pipeline, "Ranks per pipeline");
  size("--tp", options.tensor, "Tensor-parallel ranks");
  size("--microbatches", options.microbatches, "Micro-batches per pipeline and step");
  app.add_option("--recompute", options.recompute, "Recompute all stages (true) or none (false)")
      ->group("Fixed instead of searched");
  add_flag(app, flag_named("bucket-size"), options.settings).group("Fixed instead of searched");
  app.add_option("--schedules", options.schedules, "Only these schedules, such as 1f1b,zbv")
      ->delimiter(',')
      ->check(CLI::IsMember(schedule_names()))
      ->group("Fixed instead of searched");
}

void add_output(CLI::App& app, AdviseOptions& options) {
  app.add_option("--top", options.count, "Plans to print")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->group("Output");
  auto* const pareto =
      app.add_flag("--pareto", options.pareto,
                   "Print step time over memory: instead of the best plans, all that no other one beats in both")
          ->group("Output");
  app.add_flag("--rejected", options.rejected, "Print every candidate that is no answer, and why")
      ->excludes(pareto)
      ->group("Output");
  app.add_option("--verify", options.verify,
                 "Train with this many of the plans on the modelled clock, and print what was predicted beside it")
      ->check(CLI::Range(1, 1000))
      ->group("Output");
  const auto form = [&options](AdviceForm which) { return [&options, which] { options.form = which; }; };
  app.add_flag_callback("--json", form(AdviceForm::json), "Print the plans as JSON")->group("Output");
  app.add_flag_callback("--csv", form(AdviceForm::csv), "Print the plans as CSV")->group("Output");
}

}  // namespace

AdviseOptions advise_options(int argc, const char* const* argv) {
  AdviseOptions options;
  options.settings.program = kAdvise;
  options.settings.training.model = "vit";
  options.settings.training.batch_size = 256;
  options.settings.world.ranks = 8;
  options.settings.world.clock = ClockKind::modelled;
  options.settings.world.link = "nvlink4";
  CLI::App app(
      "Ranks the schedules, meshes, micro-batches, splits and recomputation with which a model can be trained: which "
      "is the fastest on these devices and links, within their memory?",
      kAdvise);
  app.footer(
      "Example:\n  advise --model vit --depth 24 --width 1024 --heads 16 --device-model h100 --ranks 8 --link pcie4");
  for (const char* name : kShared) {
    add_flag(app, flag_named(name), options.settings).group(app.option_defaults()->get_group());
  }
  app.add_option("--profile", options.profiles,
                 "Instead of --model: files with the costs of layers, one per size of micro-batches");
  add_option(app, "--memory-limit", "Memory per rank, such as 80GiB (default: that of the modelled device)",
             [&](const std::string& text) {
               options.memory_limit = static_cast<double>(byte_count(text, 1, std::uint64_t{1} << 50));
             });
  app.add_flag("--late", options.late,
               "Also search pipelines whose gradients are late (chapter 4), which learn less from a step");
  add_sizes(app, options);
  add_output(app, options);
  parse_command_line(app, argc, argv);
  for (const std::string name : kShared) {
    if (app.count("--" + name) > 0 && name != "ranks" && name != "device-model" && name != "link") {
      const FlagValue& value = flag_named(name).value;
      const std::string text = value.text(options.settings);
      if (value.kind != FlagValue::Kind::on_off) {
        options.given += fmt::format(" --{} {}", name, text);
      } else {
        options.given += fmt::format(" --{}{}", name, text == "true" ? "" : "=" + text);
      }
    }
  }
  if (app.count("--bucket-size") > 0) {
    options.bucket_size = options.settings.data_parallel.bucket_size;
  }
  throw_if<UsageError>(
      options.verify > 0 && !options.profiles.empty(),
      "--verify: layers that are only known by a profile cannot be run; leave out --verify or --profile");
  fill_in_defaults(options.settings, [](const std::string& flag) { return flag == "microbatches"; });
  return options;
}

}  // namespace stagecoach
