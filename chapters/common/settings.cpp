#include "chapters/common/settings.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <system_error>

#include "chapters/common/flag_table.h"
#include "chapters/common/open.h"
#include "core/base/parse_json.h"
#include "core/base/printable.h"
#include "core/base/text_file.h"
#include "core/base/throw_if.h"
#include "parallel/training/run_files.h"

namespace stagecoach {
namespace {

using Json = nlohmann::ordered_json;
using Kind = FlagValue::Kind;

constexpr const char* kProgram = "program";
constexpr const char* kCommand = "command";
constexpr const char* kLevel = "cpu-level";

Json json_of(const Flag& flag, const Settings& settings) {
  std::string text = flag.value.text(settings);
  switch (flag.value.kind) {
    case Kind::text:
      return text;
    case Kind::real_number:
      return std::stod(text);  // so that 30 becomes 30.0
    default:
      return parse_json<Json>(text, flag.name);
  }
}

/// Sets the flag to its value in config.json. Throws UsageError for a value that the flag would refuse.
void take(const Flag& flag, const Json& json, Settings& settings) {
  const Kind kind = flag.value.kind;
  if (kind == Kind::text ? !json.is_string() : kind == Kind::on_off ? !json.is_boolean() : !json.is_number()) {
    throw UsageError(fmt::format("expected {}, got {}",
                                 kind == Kind::text     ? "a string"
                                 : kind == Kind::on_off ? "true or false"
                                                        : "a number",
                                 json.dump(-1, ' ', false, Json::error_handler_t::replace)));
  }
  const std::string text = json.is_string() ? json.get<std::string>() : json.dump();
  if (kind != Kind::text || text != flag.value.text(settings)) {  // an empty text is valid if it is the default
    flag.value.set(settings, text);
  }
}

/// Throws DataError for a setting that no chapter has.
void require_known_names(const Json& json, const std::string& where) {
  for (const auto& [name, value] : json.items()) {
    const auto has_name = [&name = name](const Flag& flag) { return flag.name == name; };
    throw_if<DataError>(name != kProgram && name != kCommand && name != kLevel &&
                            std::none_of(flag_table().begin(), flag_table().end(), has_name),
                        "{}: unknown setting '{}': restore the original file, or delete the setting if an older "
                        "version wrote it",
                        where, printable(name));
  }
}

}  // namespace

std::string settings_table(const Settings& settings) {
  std::string table = settings.program + "\n";
  for (const Flag& flag : flag_table()) {
    const Json value = json_of(flag, settings);
    const bool is_absent =
        value == "" || (flag.group == "Model" && (value == 0 || value == false));  // what the model does not have
    if (flag.is_saved() && flag.is_offered_by(settings.chapter) && !is_absent) {
      table += fmt::format("  {:<13} {}\n", flag.name,
                           value.is_string() ? printable(value.get<std::string>()) : value.dump());
    }
  }
  if (!settings.world.cpu_level.empty()) {
    table += fmt::format("  {:<13} {}\n", kLevel, settings.world.cpu_level);
  }
  return table;
}

std::string config_json(const Settings& settings) try {
  Json json;
  json[kProgram] = settings.program;
  if (!settings.command.empty()) {
    json[kCommand] = settings.command;
  }
  if (!settings.world.cpu_level.empty()) {
    json[kLevel] = settings.world.cpu_level;
  }
  for (const Flag& flag : flag_table()) {
    if (flag.is_saved()) {
      json[flag.name] = json_of(flag, settings);
    }
  }
  return json.dump(2, ' ') + "\n";
} catch (const Json::type_error&) {
  throw UsageError("a flag's value is not valid UTF-8, so config.json cannot store it; rename the file or folder");
}

std::string training_json(const Settings& settings) {
  Json json;
  for (const Flag& flag : flag_table()) {
    if (flag.shapes_training(settings)) {
      json[flag.name] = json_of(flag, settings);
    }
  }
  if (shares_batches(settings)) {
    json["batch-parts"] = batch_parts(settings);
  }
  return json.dump();
}

bool shares_batches(const Settings& settings) {
  return settings.data_parallel.mode.has_value() || !settings.data_parallel.mesh.empty();
}

std::string batch_parts(const Settings& settings) {
  const MeshSizes mesh = mesh_of(settings);
  const int ranks = mesh.data * mesh.shard;
  const std::int64_t microbatches = settings.training.microbatches;
  const bool has_batch_norm = settings.training.model.starts_with("resnet");
  const std::string parts = (ranks == 1 || microbatches == 1) && !has_batch_norm
                                ? std::to_string(ranks * microbatches)
                                : fmt::format("{} x {}", ranks, microbatches);
  return mesh.data > 1 && mesh.shard > 1 ? fmt::format("{} in {} sums", parts, mesh.data) : parts;
}

Settings settings_from_json(const std::string& text, const std::string& where, const Chapter& chapter) {
  try {
    const Json json = parse_json<Json>(text, where, "restore the original file");
    Settings settings = chapter.defaults;
    settings.chapter = chapter.number;
    settings.program = json.at(kProgram).get<std::string>();
    throw_if<UsageError>(settings.program != chapter.program,
                         "--resume: {0} is from a run of {1}; use {1} to resume it", where, settings.program);
    if (json.contains(kCommand)) {
      settings.command = json.at(kCommand).get<std::string>();
    }
    if (json.contains(kLevel) && json.at(kLevel).is_string()) {
      settings.world.cpu_level = json.at(kLevel).get<std::string>();
    }
    require_known_names(json, where);
    for (const Flag& flag : flag_table(chapter)) {
      if (!flag.is_saved() || !flag.is_offered_by(chapter.number) || !json.contains(flag.name)) {
        continue;
      }
      try {
        take(flag, json.at(flag.name), settings);
      } catch (const UsageError& error) {
        throw DataError(fmt::format("{}: '{}': {}; restore the original file", where, flag.name, error.what()));
      }
    }
    return settings;
  } catch (const Json::exception& error) {
    throw DataError(fmt::format("{}: cannot be read as the settings of a run ({}); restore the original file", where,
                                error.what()));
  }
}

Settings read_settings(const std::filesystem::path& folder, const Chapter& chapter) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_type type = fs::status(folder, error).type();
  throw_if<DataError>(type == fs::file_type::none, "--resume {}: {}; check the name and its permissions",
                      folder.string(), error.message());
  throw_if<DataError>(type != fs::file_type::directory,
                      "--resume {}: the folder does not exist; give the --out folder of an earlier run",
                      folder.string());
  const std::string text = read_text(folder / run_files::kConfig,
                                     fmt::format("check that {} is the --out folder of a run", folder.string()));
  return settings_from_json(text, (folder / run_files::kConfig).string(), chapter);
}

Settings merge(Settings given, const Settings& older, const std::function<bool(const std::string& flag)>& was_given) {
  for (const Flag& flag : flag_table()) {
    if (flag.is_saved() && !was_given(flag.name)) {
      flag.value.copy(given, older);
    }
  }
  return given;
}

std::string first_difference(const Settings& a, const Settings& b) {
  for (const Flag& flag : flag_table()) {
    if (flag.shapes_training(a) && flag.value.text(a) != flag.value.text(b)) {
      return flag.name;
    }
  }
  return "";
}

}  // namespace stagecoach
