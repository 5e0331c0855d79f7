#include <array>

#include "core/base/json_object.h"
#include "core/base/parse_json.h"
#include "core/device_model.h"

namespace stagecoach {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kKinds{"matrix_product", "convolution", "wide_convolution",
                            "attention",      "elementwise", "reduction"};
constexpr auto kWide = static_cast<std::size_t>(CostKind::wide_convolution);
constexpr double kMaxRate = 1e21;           // operations or bytes per second
constexpr double kMaxLaunchSeconds = 1e-3;  // so that a call's launches fit its picoseconds
constexpr std::int64_t kMaxMemory = std::int64_t{1} << 60;
constexpr std::int64_t kMaxCopyEngines = 16;

Json json_of(const DeviceModel::Rates& rates) {
  Json json;
  for (std::size_t kind = 0; kind < rates.size(); ++kind) {
    json[kKinds[kind]] = {{"flops_per_second", rates[kind].flops_per_second}, {"half", rates[kind].half}};
  }
  return json;
}

DeviceModel::Rates rates_in(JsonObject& file, const std::string& type, const std::string& where) {
  JsonObject object(file.take(type, "an object with the rates of each kind"), where + ": " + type);
  DeviceModel::Rates rates{};
  for (std::size_t kind = 0; kind < rates.size(); ++kind) {
    if (kind == kWide && !object.has(kKinds[kind])) {
      rates[kind] = rates[static_cast<std::size_t>(CostKind::convolution)];
      continue;
    }
    JsonObject rate(object.take(kKinds[kind], "an object with flops_per_second and half"),
                    fmt::format("{}: {}: {}", where, type, kKinds[kind]));
    rates[kind] = {.flops_per_second = rate.number("flops_per_second", 1, kMaxRate, "operations per second"),
                   .half = rate.number("half", 0, kMaxRate, "operations")};
    rate.require_no_others();
  }
  object.require_no_others();
  return rates;
}

}  // namespace

std::string to_json(const DeviceModel& model) {
  const Json json{{"name", model.name},
                  {"backend", model.backend == DeviceType::cuda ? "cuda" : "cpu"},
                  {"float32", json_of(model.float32)},
                  {"float64", json_of(model.float64)},
                  {"bytes_per_second", model.bytes_per_second},
                  {"launch_seconds", model.launch_seconds},
                  {"host_launch_seconds", model.host_launch_seconds},
                  {"host_bytes_per_second", model.host_bytes_per_second},
                  {"load_bytes_per_second", model.load_bytes_per_second},
                  {"memory_bytes", model.memory_bytes},
                  {"copy_engines", model.copy_engines}};
  return json.dump(2) + "\n";
}

DeviceModel device_model_from_json(const std::string& text, const std::string& where) {
  const Json json = parse_json<Json>(text, where, "calibrate writes the file of a device model");
  JsonObject file(json, where);
  const auto bandwidth = [&](const std::string& key) { return file.number(key, 1, kMaxRate, "bytes per second"); };
  const auto launch = [&](const std::string& key) { return file.number(key, 0, kMaxLaunchSeconds, "seconds"); };
  DeviceModel model{.name = file.name("name"),
                    .backend = file.either("backend", "cpu", "cuda") == "cuda" ? DeviceType::cuda : DeviceType::cpu,
                    .float32 = rates_in(file, "float32", where),
                    .float64 = rates_in(file, "float64", where),
                    .bytes_per_second = bandwidth("bytes_per_second"),
                    .launch_seconds = launch("launch_seconds"),
                    .host_launch_seconds = launch("host_launch_seconds"),
                    .host_bytes_per_second = bandwidth("host_bytes_per_second"),
                    .load_bytes_per_second = bandwidth("load_bytes_per_second"),
                    .memory_bytes = file.whole("memory_bytes", 1, kMaxMemory, " of bytes"),
                    .copy_engines = static_cast<int>(file.whole("copy_engines", 0, kMaxCopyEngines, ""))};
  file.require_no_others();
  return model;
}

}  // namespace stagecoach
