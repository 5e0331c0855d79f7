#include "chapters/common/settings.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <type_traits>

#include "chapters/common/bounds.h"
#include "chapters/common/flags.h"
#include "core/error.h"
#include "core/printable.h"

namespace stagecoach {
namespace {

using Json = nlohmann::ordered_json;

/// Calls visit(name of the flag, value, shapes_training) for each setting that is written down. A setting shapes the
/// training when another value gives other weights.
template <class SettingsType, class Visit>
void for_each_setting(SettingsType& s, const Visit& visit) {
  const bool asynchronous =
      !s.pipeline.versions.empty();                   // then stages and replicas may decide how late a gradient comes
  const bool shared = !s.data_parallel.mode.empty();  // then gradients are summed rank by rank
  visit("data", s.data.source, false);                // the same pictures may lie elsewhere
  visit("max-megapixels", s.data.max_megapixels, false);
  visit("augment", s.training.augment, true);
  visit("image-size", s.training.image_size, true);
  visit("model", s.training.model, true);
  visit("head", s.training.head, true);
  visit("epochs", s.training.epochs, false);
  visit("batch-size", s.training.batch_size, true);
  visit("microbatches", s.training.microbatches, true);
  visit("optimizer", s.training.optimizer, true);
  visit("lr", s.training.lr, true);
  visit("momentum", s.training.momentum, true);
  visit("weight-decay", s.training.weight_decay, true);
  visit("lr-warmup", s.training.lr_warmup, true);
  visit("lr-discount", s.training.lr_discount, true);
  visit("seed", s.training.seed, true);
  visit("ranks", s.world.ranks, asynchronous || shared);
  visit("mode", s.data_parallel.mode, false);
  visit("mesh", s.data_parallel.mesh, true);
  visit("bucket-size", s.data_parallel.bucket_size, false);
  visit("first-bucket-size", s.data_parallel.first_bucket_size, false);
  visit("find-unused", s.data_parallel.find_unused, false);
  visit("compress", s.data_parallel.compress, true);
  visit("sync-batch-norm", s.data_parallel.sync_batch_norm, true);
  visit("versions", s.pipeline.versions, true);
  visit("version-check", s.pipeline.version_check, false);
  visit("replicas", s.pipeline.replicas, true);
  visit("schedule", s.pipeline.schedule, false);
  visit("chunks", s.pipeline.chunks, false);
  visit("group", s.pipeline.group, false);
  visit("split", s.pipeline.split, asynchronous);
  visit("balance", s.pipeline.balance, false);
  visit("recompute", s.pipeline.recompute, false);
  visit("receives", s.pipeline.receives, false);
  visit("clock", s.world.clock, false);
  visit("link", s.world.link, false);
  visit("transport", s.world.transport, false);
  visit("reduce", s.world.reduce, true);
  visit("timeout", s.world.timeout, false);
  visit("device", s.world.device, false);
  visit("threads", s.world.threads, false);
  visit("graph", s.world.graph, false);
  visit("tf32", s.world.tf32, true);
  visit("smoke", s.data.smoke, true);
}

Json json_of(const Settings& settings) {
  Json json;
  json["program"] = settings.program;
  for_each_setting(settings, [&](const char* name, const auto& value, bool) { json[name] = value; });
  return json;
}

/// Why `json` cannot be the value of setting `name`, or "". A text that the chapter has without any flag is good.
template <class T>
std::string refusal(const Json& json, const std::string& name, const T& standard, const Bounds& bounds) {
  constexpr bool kIsText = std::is_same_v<T, std::string>;
  constexpr bool kIsSwitch = std::is_same_v<T, bool>;
  if (kIsText ? !json.is_string() : kIsSwitch ? !json.is_boolean() : !json.is_number()) {
    return fmt::format("expected {}, got {}",
                       kIsText     ? "a text"
                       : kIsSwitch ? "true or false"
                                   : "a number",
                       json.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  std::string text = json.is_string() ? json.get<std::string>() : json.dump();
  return kIsText && json == standard ? "" : bounds.check(name, text);
}

}  // namespace

const std::map<std::string, std::string>& flags_of_some_chapters() {
  static const std::map<std::string, std::string> reasons{
      {"microbatches", "this chapter does not cut its batches; chapters 1 and 3 to 6 do"},
      {"ranks", "this chapter trains on one device; ranks begin in chapter 2"},
      {"split", "this chapter trains on one device; models are split from chapter 2 on"},
      {"balance", "this chapter trains on one device; models are split from chapter 2 on"},
      {"clock", "this program measures by the wall clock"},
      {"link", "this chapter trains on one device and sends no messages; ranks begin in chapter 2"},
      {"transport", "this chapter trains on one device and sends no messages; ranks begin in chapter 2"},
      {"reduce", "no gradients are summed over ranks here; it belongs to chapter 6 (ch06_ddp)"},
      {"timeout", "this chapter trains on one device and waits for nobody; ranks begin in chapter 2"},
      {"recompute", "this chapter keeps one micro-batch at a time; pipelines begin in chapter 3"},
      {"receives", "this chapter posts a receive where it is written; pipelines from a table begin in chapter 3"},
      {"lowered", "this chapter has no table of actions; schedules begin in chapter 3"},
      {"schedule", "this chapter has one order of work; schedules to choose from begin in chapter 3"},
      {"chunks", "this chapter gives each rank one stage; chunks belong to chapter 5 (ch05_interleaved)"},
      {"group", "this chapter gives each rank one stage; groups belong to chapter 5 (ch05_interleaved)"},
      {"versions",
       "here gradients come in time, and one version of the weights is enough; versions belong to chapter 4 "
       "(ch04_pipedream)"},
      {"replicas", "this chapter gives each stage one rank; replicas belong to chapter 4 (ch04_pipedream)"},
      {"ledger", "here there is one version of the weights; the ledger belongs to chapter 4 (ch04_pipedream)"},
      {"version-check", "it is always on here; it belongs to chapter 4 (ch04_pipedream)"},
      {"no-version-check", "no policy of this chapter needs it; it belongs to chapter 4 (ch04_pipedream)"},
      {"lr-warmup", "it is for gradients that come late, in chapter 4 (ch04_pipedream)"},
      {"lr-discount", "it is for gradients that come late, in chapter 4 (ch04_pipedream)"},
      {"plan", "this chapter measures its layers itself; plans belong to chapter 4 (ch04_pipedream)"},
      {"save-plan", "this chapter has no plan to save; plans belong to chapter 4 (ch04_pipedream)"},
      {"mode", "here ranks do not share batches; that belongs to chapter 6 (ch06_ddp)"},
      {"mesh", "here ranks do not share batches; meshes belong to chapter 6 (ch06_ddp)"},
      {"bucket-size", "no gradients are reduced here; buckets belong to chapter 6 (ch06_ddp)"},
      {"first-bucket-size", "no gradients are reduced here; buckets belong to chapter 6 (ch06_ddp)"},
      {"find-unused", "no gradients are reduced here; it belongs to chapter 6 (ch06_ddp)"},
      {"compress", "no gradients are reduced here; it belongs to chapter 6 (ch06_ddp)"},
      {"sync-batch-norm", "here no other rank has a part of the micro-batch; it belongs to chapter 6 (ch06_ddp)"},
      {"graph", "a recorded step cannot wait for other ranks; it belongs to chapter 1"},
      {"no-graph", "no step is recorded here; it belongs to chapter 1"},
      {"explain", "this chapter has no schedule to explain"},
  };
  return reasons;
}

std::string settings_table(const Settings& settings) {
  std::string table = settings.program + "\n";
  const Json json = json_of(settings);
  for (const auto& [name, value] : json.items()) {
    const bool is_foreign = flags_of_some_chapters().contains(name) && !settings.chapter_flags.contains(name);
    if (name != "program" && !is_foreign && value != "") {
      table +=
          fmt::format("  {:<13} {}\n", name, value.is_string() ? printable(value.get<std::string>()) : value.dump());
    }
  }
  return table;
}

std::string to_json(const Settings& settings) try {
  return json_of(settings).dump(2, ' ') + "\n";
} catch (const Json::type_error&) {
  throw UsageError("a flag's value is not valid UTF-8, so config.json cannot hold it; rename that file or folder");
}

std::string training_json(const Settings& settings) {
  Json json;
  for_each_setting(settings, [&](const char* name, const auto& value, bool shapes_training) {
    if (shapes_training) {
      json[name] = value;
    }
  });
  return json.dump();
}

Settings settings_from_json(const std::string& text, const std::string& where, const Chapter& chapter) {
  try {
    const Json json = Json::parse(text);
    Settings settings = chapter.defaults;
    settings.program = json.at("program").get<std::string>();
    if (settings.program != chapter.program) {
      throw UsageError(fmt::format("--resume: {} is of a run that was made by {}", where, settings.program));
    }
    const Bounds bounds(chapter);
    for_each_setting(settings, [&](const char* name, auto& value, bool) {
      const Json& found = json.at(name);
      if (const std::string why = refusal(found, name, value, bounds); !why.empty()) {
        throw DataError(fmt::format("{}: '{}': {}; was the file changed?", where, name, why));
      }
      found.get_to(value);
    });
    return settings;
  } catch (const Json::exception& error) {
    throw DataError(fmt::format("{}: cannot be read as the settings of a run ({})", where, error.what()));
  }
}

Settings merge(Settings given, const Settings& older, const std::function<bool(const std::string& flag)>& was_given) {
  const Json json = json_of(older);
  for_each_setting(given, [&](const char* name, auto& value, bool) {
    if (!was_given(name)) {
      json.at(name).get_to(value);
    }
  });
  return given;
}

std::string first_difference(const Settings& a, const Settings& b) {
  const Json other = json_of(b);
  std::string difference;
  for_each_setting(a, [&](const char* name, const auto& value, bool shapes_training) {
    if (shapes_training && difference.empty() && Json(value) != other[name]) {
      difference = name;
    }
  });
  return difference;
}

}  // namespace stagecoach
