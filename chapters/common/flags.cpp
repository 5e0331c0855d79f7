#include "chapters/common/flags.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "chapters/common/bug_hooks.h"
#include "chapters/common/flag_rules.h"
#include "chapters/common/flag_table.h"
#include "chapters/common/open.h"
#include "core/base/throw_if.h"
#include "core/kernels/levels.h"
#include "parallel/launch/launch_environment.h"
#include "parallel/schedule/schedule_kinds.h"

namespace stagecoach {
namespace {

/// Returns the name in "--name", "--no-name" or "--name=value"; empty for an argument that is no flag.
std::string_view flag_name(std::string_view argument) {
  if (!argument.starts_with("--")) {
    return "";
  }
  argument.remove_prefix(argument.starts_with("--no-") ? 5 : 2);
  return argument.substr(0, argument.find('='));
}

/// Throws UsageError for flags of other chapters, with an explanation; CLI11 would only call them unknown.
void refuse_foreign_flags(int argc, const char* const* argv, const Chapter& chapter) {
  for (const std::string_view argument : std::span(argv + 1, argv + argc)) {
    const std::string_view name = flag_name(argument);
    for (const Flag& flag : flag_table()) {
      throw_if<UsageError>(flag.name == name && !flag.is_offered_by(chapter.number), "{} is not a flag of {}: {}",
                           argument.substr(0, argument.find('=')), chapter.program, flag.chapters.elsewhere);
    }
  }
}

/// What is on a command line.
struct CommandLine {
  Settings settings;
  std::set<std::string> given = {};  ///< the flags, without dashes
};

/// Sets a flag to a text from the command line.
void take(CommandLine& line, const Flag& flag, const std::string& text) {
  if (flag.name == "inject" && text == "list") {
    std::cout << bug_list(line.settings.chapter);
    throw HelpShown{};
  }
  try {
    flag.value.set(line.settings, text);
  } catch (const UsageError& error) {
    throw CLI::ValidationError("--" + flag.name, error.what());
  }
  line.given.insert(flag.name);
}

/// Describes a flag to CLI11, which then writes to `line`. A switch that is on by default has a second name that turns
/// it off.
void add_flag(CLI::App& app, const Flag& flag, CommandLine& line) {
  const std::string usual = flag.value.text(line.settings);
  const std::string name = "--" + flag.name;
  if (flag.value.kind == FlagValue::Kind::on_off) {
    app.add_flag_function(
           usual == "true" ? fmt::format("{},!--no-{}", name, flag.name) : name,
           [&line, flag](std::int64_t count) { take(line, flag, count > 0 ? "true" : "false"); }, flag.help)
        ->group(flag.group)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    return;
  }
  const bool is_chosen_later = flag.name == "momentum";  // its default depends on the optimizer
  app.add_option_function<std::string>(
         name, [&line, flag](const std::string& text) { take(line, flag, text); }, flag.help)
      ->group(flag.group)
      ->type_name(flag.value.type)
      ->default_str(is_chosen_later ? "" : usual);
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

/// Reads a command line. Throws HelpShown and UsageError.
CommandLine read_line(int argc, const char* const* argv, const Chapter& chapter) {
  CommandLine line{defaults_of(chapter)};
  CLI::App app(chapter.title, chapter.program);
  app.footer(schedules_help(chapter) + "Example:\n  " + chapter.example + "\n\n" + cpu::levels_help());
  for (const Flag& flag : flag_table(chapter)) {
    if (flag.is_offered_by(chapter.number)) {
      add_flag(app, flag, line);
    }
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    throw HelpShown{};
  } catch (const CLI::ParseError& error) {
    throw UsageError(fmt::format("{}; {} --help lists the flags", error.what(), chapter.program));
  }
  return line;
}

/// Throws UsageError for --smoke with --data, and for an empty file or folder name.
void require_usable(const Settings& s, const WasGiven& was_given) {
  for (const auto& [flag, value] : {std::pair("resume", s.run.resume),
                                    {"out", s.run.out},
                                    {"data", s.data.source},
                                    {"profile-file", s.pipeline.profile_file}}) {
    throw_if<UsageError>(was_given(flag) && value.empty(),
                         "--{} is empty; give a file or folder, or leave out the flag", flag);
  }
  throw_if<UsageError>(s.data.smoke && was_given("data"), "--smoke runs on generated images; leave out --data");
}

/// Throws UsageError if --out is in the folder of the data: a later run would take what is there for data.
void require_out_beside_data(const Settings& s) {
  if (s.run.out.empty() || s.data.source == "generated") {
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

/// Throws UsageError if ranks that share batches would sum the gradient of a batch in other parts than before.
void require_same_parts(const Settings& now, const Settings& older) {
  throw_if<UsageError>(shares_batches(now) && batch_parts(now) != batch_parts(older),
                       "--resume {}: the weights would differ: expected the parts of a batch (data-parallel ranks x "
                       "micro-batches) to be {}, got {}; give --mesh dp={} and --microbatches {} to keep them, or "
                       "start a new run without "
                       "--resume",
                       now.run.resume, batch_parts(older), batch_parts(now), mesh_of(older).data,
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

Settings parse_flags(int argc, const char* const* argv, const Chapter& chapter) {
  refuse_foreign_flags(argc, argv, chapter);
  CommandLine line = read_line(argc, argv, chapter);
  Settings& settings = line.settings;
  const auto was_given = [&](const std::string& name) { return line.given.contains(name); };
  require_usable(settings, was_given);
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
    throw_if<UsageError>(older->data.smoke && was_given("data"),
                         "--resume {}: that run has --smoke, which runs on generated images; leave out --data",
                         settings.run.resume);
    settings = merged_with_older(settings, *older, is_decided, chapter);
    settings.run.resumed_level = older->world.cpu_level;
  }
  if (settings.world.device->type == DeviceType::cpu) {
    settings.world.cpu_level = cpu::level_in_use().name;
  }
  choose_transport(settings.world, was_given);
  fill_in_defaults(settings, is_decided);
  const std::string changed = older ? first_difference(settings, *older) : "";
  throw_if<UsageError>(!changed.empty(),
                       "--{} differs from the run in {}, but --resume continues the same training; leave out the flag, "
                       "or start a new run without --resume",
                       changed, settings.run.resume);
  if (older) {
    require_same_parts(settings, *older);
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
