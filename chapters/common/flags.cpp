#include "chapters/common/flags.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "chapters/common/bug_hooks.h"
#include "chapters/common/flag_rules.h"
#include "chapters/common/flag_table.h"
#include "chapters/common/open.h"
#include "core/base/printable.h"
#include "core/base/throw_if.h"
#include "core/kernels/levels.h"
#include "datasets/text.h"
#include "parallel/launch/launch_environment.h"
#include "parallel/schedule/schedule_kinds.h"

namespace stagecoach {
namespace {

/// Refuses other values of a flag that is on or off, such as --ledger=7up, of which CLI11 would read the 7.
std::string is_on_or_off(const std::string& text) {
  return text == "true" || text == "false" ? "" : fmt::format("expected true or false, got '{}'", text);
}

/// Lets CLI11 accept a flag of other chapters, but not show it, and refuses it with an explanation.
void refuse_flag(CLI::App& app, const Flag& flag, const Chapter& chapter) {
  for (const std::string& name : {"--" + flag.name, "--no-" + flag.name}) {
    app.add_option_function<std::vector<std::string>>(
           name,
           [name, &flag, &chapter](const auto& /*values*/) {
             throw UsageError(fmt::format("{} is not a flag of {}: it belongs to chapter {}", name, chapter.program,
                                          fmt::join(flag.chapters, ", ")));
           })
        ->group("")
        ->expected(0, -1);
  }
}

/// Describes the schedules of --schedule, one per line; empty for a chapter without --schedule.
std::string schedules_help(const Chapter& chapter) {
  std::string help;
  for (const std::string& name : chapter.schedules) {
    const ScheduleKind* kind = find_schedule(name);
    help += fmt::format("  {:<14} {}\n", name, kind == nullptr ? "the chapter's own loop" : kind->summary);
  }
  return help.empty() ? "" : "Schedules:\n" + help + "\n";
}

/// Returns the settings of a command line without flags.
Settings defaults_of(const Chapter& chapter) {
  Settings settings = chapter.defaults;
  settings.program = chapter.program;
  settings.chapter = chapter.number;
  if (!chapter.schedules.empty()) {
    settings.pipeline.schedule = chapter.schedules.front();
  }
  return settings;
}

/// Reads a command line into `settings`. Throws HelpShown and UsageError.
void read_line(CLI::App& app, int argc, const char* const* argv, const Chapter& chapter, Settings& settings) {
  app.footer(schedules_help(chapter) + "Example:\n  " + chapter.example + "\n\n" + cpu::levels_help());
  for (const Flag& flag : flag_table(chapter)) {
    if (flag.is_offered_by(chapter.number)) {
      add_flag(app, flag, settings);
    } else {
      refuse_flag(app, flag_named(flag.name), chapter);
    }
  }
  parse_command_line(app, argc, argv);
}

/// Throws UsageError if --out is in the folder of the data: a later run would take what is there for data.
void require_out_beside_data(const Settings& s) {
  if (s.run.out.empty() || s.data.source == "generated" || is_text(s.data.source)) {
    return;
  }
  std::error_code ignored;
  const auto data = std::filesystem::weakly_canonical(s.data.source, ignored);
  const auto out = std::filesystem::weakly_canonical(s.run.out, ignored);
  const auto differs = std::mismatch(data.begin(), data.end(), out.begin(), out.end());
  throw_if<UsageError>(
      !data.empty() && differs.first == data.end(),
      "--out {}: expected a folder outside --data {}, where a later run would take its files for data; "
      "give another folder",
      s.run.out, s.data.source);
}

/// Returns the settings of the run that --resume names. Throws UsageError for a run without checkpoints; DataError if
/// the settings contradict each other: no run starts with such settings.
Settings read_older(const Settings& given, const WasGiven& was_given, const Chapter& chapter) {
  Settings older = read_settings(given.run.resume, chapter);
  throw_if<UsageError>(
      older.pipeline.form == ControllerForm::remote,
      "--resume {}: --form remote writes no checkpoints, as the optimizer's state stays on the workers; "
      "leave out --resume to start again",
      given.run.resume);
  fill_in_defaults(older, [](const std::string&) { return true; });  // config.json may omit settings
  Settings whole = older;
  whole.run.resume = given.run.resume;
  if (was_given("schedule")) {
    whole.pipeline.schedule = given.pipeline.schedule;  // the older run's schedule file may have been removed
  }
  try {
    require_consistent(chapter, whole);
  } catch (const UsageError& error) {
    throw DataError(fmt::format("{}/config.json: the settings contradict each other ({}); restore the original file",
                                given.run.resume, error.what()));
  }
  return older;
}

/// Throws UsageError for a flag that would change the training, or if ranks that share batches would sum the gradient
/// of a batch in other parts than before.
void require_same_training(const Settings& now, const Settings& older) {
  const std::string changed = first_difference(now, older);
  throw_if<UsageError>(!changed.empty(),
                       "--{} differs from the run in {}, but --resume continues the same training; leave out the flag, "
                       "or start a new run without --resume",
                       changed, now.run.resume);
  const MeshSizes mesh = mesh_of(older);
  throw_if<UsageError>(
      shares_batches(now) && batch_parts(now) != batch_parts(older),
      "--resume {}: the weights would differ: expected the parts of a batch (data-parallel ranks x micro-batches) "
      "to be {}, got {}; give --mesh {} and --microbatches {} to keep them, or start a new run without "
      "--resume",
      now.run.resume, batch_parts(older), batch_parts(now),
      older.data_parallel.shard ? fmt::format("dp={},shard={}", mesh.data, mesh.shard)
                                : fmt::format("dp={}", mesh.data),
      older.training.microbatches);
}

/// Returns the older run's settings, overridden by the flags that were given now.
Settings merged_with_older(const Settings& given, const Settings& older, const WasGiven& was_given,
                           const Chapter& chapter) {
  Settings merged = merge(given, older, was_given);
  if (was_given("schedule") && !was_given("chunks")) {
    merged.pipeline.chunks = chapter.defaults.pipeline.chunks;  // the older run's chunks were for its own schedule
  }
  const bool is_synchronous = !merged.pipeline.versions;  // otherwise the stages are part of the training
  if (is_synchronous &&
      (was_given("ranks") || was_given("chunks") || was_given("schedule") || was_given("balance") ||
       was_given("mesh")) &&
      !was_given("split")) {
    merged.pipeline.split = {};
  }
  const bool has_pipeline = mesh_of(merged).pipeline > 1;
  if (merged.data_parallel.mode && has_pipeline != (mesh_of(older).pipeline > 1)) {
    merged.pipeline = given.pipeline;  // the older run's settings were for its own pipeline, or for none
  }
  if (merged.run.out.empty()) {
    merged.run.out = merged.run.resume;
  }
  return merged;
}

}  // namespace

CLI::Option& add_option(CLI::App& app, const std::string& name, const std::string& help,
                        const std::function<void(const std::string& text)>& set) {
  const auto checked = [name, set](const std::string& text) {
    try {
      set(text);
    } catch (const UsageError& error) {
      throw CLI::ValidationError(name, error.what());
    }
  };
  return *app.add_option_function<std::string>(name, checked, help);
}

CLI::Option& add_flag(CLI::App& app, const Flag& flag, Settings& settings) {
  const std::string usual = flag.value.text(settings);
  const std::string name = "--" + flag.name;
  const auto set = [&settings, flag](const std::string& text) {
    if (flag.name == "inject" && text == "list") {
      std::cout << bug_list(settings.chapter);
      throw HelpShown{};
    }
    flag.value.set(settings, text);
  };
  if (flag.value.kind == FlagValue::Kind::on_off) {
    return *app.add_flag_function(
                   usual == "true" ? fmt::format("{},!--no-{}", name, flag.name) : name,
                   [set](std::int64_t count) { set(count > 0 ? "true" : "false"); }, flag.help)
                ->group(flag.group)
                ->check(is_on_or_off)
                ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
  return *add_option(app, name, flag.help, set)
              .group(flag.group)
              ->type_name(flag.value.type)
              ->default_str(flag.name == "momentum" ? "" : usual);  // that of momentum depends on the optimizer
}

void parse_command_line(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help() << std::flush;
    throw HelpShown{};
  } catch (const CLI::ParseError& error) {
    throw UsageError(fmt::format("{}; {} --help lists the flags", error.what(), app.get_name()));
  }
}

namespace {

/// Returns a command line as a shell reads it.
std::string command_of(int argc, const char* const* argv) {
  constexpr const char* kPlainLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%";  // need no quotes
  std::string command;
  for (int i = 0; i < argc; ++i) {
    std::string word = printable(argv[i]);
    if (word.empty() || word.find_first_not_of(kPlainLetters) != std::string::npos) {
      for (std::size_t at = 0; (at = word.find('\'', at)) != std::string::npos; at += 4) {
        word.replace(at, 1, "'\\''");
      }
      word = "'" + word + "'";
    }
    command += (i == 0 ? "" : " ") + word;
  }
  return command;
}

}  // namespace

Settings parse_flags(int argc, const char* const* argv, const Chapter& chapter) {
  Settings settings = defaults_of(chapter);
  settings.command = command_of(argc, argv);
  CLI::App app(chapter.title, chapter.program);
  read_line(app, argc, argv, chapter, settings);
  const auto was_given = [&](const std::string& name) {
    const CLI::Option* option = app.get_option_no_throw("--" + name);
    return option != nullptr && option->count() > 0;
  };
  if (settings.data.smoke && !was_given("epochs")) {
    settings.training.epochs = settings.training.model == "convnet" ? 2 : 1;
  }
  follow_launcher(settings.world, chapter, was_given);
  // Settings that the launcher decides are not taken from the older run.
  const bool launcher_decides = launch_environment() && settings.world.transport != Transport::thread;
  const auto is_decided = [&](const std::string& name) {
    return was_given(name) || name == "transport" || (name == "ranks" && launcher_decides);
  };
  std::optional<Settings> older;
  if (!settings.run.resume.empty()) {
    older = read_older(settings, is_decided, chapter);
    settings = merged_with_older(settings, *older, is_decided, chapter);
    settings.run.resumed_level = older->world.cpu_level;
  }
  throw_if<UsageError>(settings.data.smoke && was_given("data"),
                       "--data: --smoke, here or in the run to resume, chooses its own data; leave out --data");
  if (settings.world.device->type == DeviceType::cpu) {
    settings.world.cpu_level = cpu::level_in_use().name;
  }
  choose_transport(settings.world, was_given);
  fill_in_defaults(settings, is_decided);
  if (older) {
    require_same_training(settings, *older);
  }
  require_consistent(chapter, settings);
  require_out_beside_data(settings);
  put_bug_into(settings);
  if (settings.run.explain && !is_rank_zero()) {
    settings.run.out.clear();  // rank 0 writes the files
  }
  return settings;
}

}  // namespace stagecoach
