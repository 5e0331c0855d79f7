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
  const bool asynchronous = !s.versions.empty();  // then stages and replicas may decide how late a gradient comes
  const bool shared = !s.mode.empty();            // then gradients are summed rank by rank
  visit("data", s.data, false);                   // the same pictures may lie elsewhere
  visit("max-megapixels", s.max_megapixels, false);
  visit("augment", s.augment, true);
  visit("image-size", s.image_size, true);
  visit("model", s.model, true);
  visit("head", s.head, true);
  visit("epochs", s.epochs, false);
  visit("batch-size", s.batch_size, true);
  visit("microbatches", s.microbatches, true);
  visit("optimizer", s.optimizer, true);
  visit("lr", s.lr, true);
  visit("momentum", s.momentum, true);
  visit("weight-decay", s.weight_decay, true);
  visit("lr-warmup", s.lr_warmup, true);
  visit("lr-discount", s.lr_discount, true);
  visit("seed", s.seed, true);
  visit("ranks", s.ranks, asynchronous || shared);
  visit("mode", s.mode, false);
  visit("mesh", s.mesh, true);
  visit("bucket-size", s.bucket_size, false);
  visit("first-bucket-size", s.first_bucket_size, false);
  visit("find-unused", s.find_unused, false);
  visit("compress", s.compress, true);
  visit("sync-batch-norm", s.sync_batch_norm, true);
  visit("versions", s.versions, true);
  visit("version-check", s.version_check, false);
  visit("replicas", s.replicas, true);
  visit("schedule", s.schedule, false);
  visit("chunks", s.chunks, false);
  visit("group", s.group, false);
  visit("split", s.split, asynchronous);
  visit("balance", s.balance, false);
  visit("recompute", s.recompute, false);
  visit("receives", s.receives, false);
  visit("clock", s.clock, false);
  visit("link", s.link, false);
  visit("transport", s.transport, false);
  visit("reduce", s.reduce, true);
  visit("timeout", s.timeout, false);
  visit("device", s.device, false);
  visit("threads", s.threads, false);
  visit("graph", s.graph, false);
  visit("tf32", s.tf32, true);
  visit("smoke", s.smoke, true);
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
