#include "parallel/training/epoch_log.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/parse_json.h"
#include "core/base/throw_if.h"

namespace stagecoach {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const NamedNumbers& numbers) {
  Json json = Json::object();
  for (const auto& [name, value] : numbers) {
    json[name] = value;
  }
  return json;
}

/// Returns [[from, to, bytes], …].
Json json_of(const std::vector<LinkBytes>& links) {
  Json json = Json::array();
  for (const LinkBytes& link : links) {
    json.push_back({link.from, link.to, link.bytes});
  }
  return json;
}

}  // namespace

void Prediction::add_wait(double seconds) {
  if (predicted_seconds && *predicted_seconds + seconds > 0) {
    const double idle = predicted_idle.value_or(0) * *predicted_seconds + seconds;
    *predicted_seconds += seconds;
    predicted_idle = predicted_idle ? std::optional(idle / *predicted_seconds) : std::nullopt;
  }
}

std::string epoch_line(const EpochResult& r) {
  const auto part = [](const char* name, const std::optional<double>& value) {
    return value ? fmt::format(", {}: {:.2f}", name, *value) : "";
  };
  const std::string test = r.test_accuracy ? part("test acc", r.test_accuracy) : part("test loss", r.test_loss);
  return fmt::format("Epoch: {}, Loss: {:.2f}{}, time cost: {:.2f}s{}, {:.0f} img/s, idle {:.1f}% (ideal {:.1f}%){}",
                     r.epoch, r.loss, part("acc", r.accuracy), r.seconds, test, r.images_per_second, 100 * r.idle,
                     100 * r.prediction.ideal_idle, r.clock == "wall" ? "" : ", " + r.clock);
}

std::string epoch_json(const EpochResult& r) {
  Json json{{"event", "epoch"}, {"epoch", r.epoch}, {"loss", r.loss}};
  const auto add = [&](const char* key, const std::optional<double>& value) {
    if (value) {
      json[key] = *value;
    }
  };
  add("acc", r.accuracy);
  add("test_acc", r.test_accuracy);
  add("test_loss", r.test_loss);
  json["seconds"] = r.seconds;
  json["clock"] = r.clock;
  json["images_per_second"] = r.images_per_second;
  json["idle"] = r.idle;
  json["ideal_idle"] = r.prediction.ideal_idle;
  json["peak_bytes"] = r.peak_bytes;
  json["steps"] = r.steps;
  json["links"] = json_of(r.links);
  add("predicted_idle", r.prediction.predicted_idle);
  add("predicted_seconds", r.prediction.predicted_seconds);
  add("replayed_seconds", r.prediction.replayed_seconds);
  add("busiest_seconds", r.prediction.busiest_seconds);
  add("overlap", r.prediction.overlap);
  if (!r.prediction.versions.empty()) {
    json["versions"] = r.prediction.versions;
  }
  if (!r.prediction.delays.empty()) {
    json["delays"] = r.prediction.delays;
  }
  if (!r.step_parts.empty()) {
    json["step_parts"] = json_of(r.step_parts);
  }
  for (const NamedNumbers& rank : r.prediction.memory) {
    json["predicted_memory"].push_back(json_of(rank));
  }
  return json.dump();
}

std::optional<std::int64_t> epoch_of_json(const std::string& line, const std::string& where) {
  constexpr const char* kAdvice = "correct the line, or move the file away to continue without its metrics";
  const auto json = parse_json<nlohmann::json>(line, where + ": expected a JSON object, but the line", kAdvice);
  throw_if<DataError>(!json.is_object(), "{}: expected a JSON object, got another value; {}", where, kAdvice);
  if (!json.contains("event") || json["event"] != "epoch") {
    return std::nullopt;
  }
  throw_if<DataError>(!json.contains("epoch") || !json["epoch"].is_number_integer() || json["epoch"] < 0,
                      "{}: 'epoch' must be a whole number of 0 or more; {}", where, kAdvice);
  return json["epoch"].get<std::int64_t>();
}

}  // namespace stagecoach
