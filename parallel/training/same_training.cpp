#include "parallel/training/same_training.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/base/parse.h"
#include "core/base/parse_json.h"
#include "core/base/phrases.h"
#include "core/base/throw_if.h"

namespace stagecoach {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Fingerprint::Part& part) { return {{"counts", part.counts}, {"crc32", part.digest}}; }

/// Throws Json::exception if `json` is not a whole number from 0 to `most`.
std::uint64_t number_in(const Json& json, std::uint64_t most) {
  if (!json.is_number_unsigned() || json.get<std::uint64_t>() > most) {
    throw Json::other_error::create(0, "expected a whole number", &json);
  }
  return json.get<std::uint64_t>();
}

Fingerprint::Part part_from(const Json& json) {
  Fingerprint::Part part{
      .digest = static_cast<std::uint32_t>(number_in(json.at("crc32"), std::numeric_limits<std::uint32_t>::max()))};
  for (const Json& count : json.at("counts")) {
    part.counts.push_back(static_cast<std::int64_t>(number_in(count, std::numeric_limits<std::int64_t>::max())));
  }
  return part;
}

/// Returns "4 replicas with 1 micro-batch each".
std::string described(const BatchParts& parts) {
  return fmt::format("{} with {}{}", counted(parts.replicas, "replica"), counted(parts.microbatches, "micro-batch"),
                     parts.replicas > 1 ? " each" : "");
}

/// Returns whether the gradients of all parts of a batch are added one after the other, by a replica or over replicas.
bool is_one_sum(const BatchParts& parts) { return parts.replicas == 1 || parts.microbatches == 1; }

}  // namespace

bool trains_alike(const std::string& saved, const std::string& now) try {
  const Json before = parse_json<Json>(saved, "the saved settings");
  const Json after = parse_json<Json>(now, "the settings");
  if (!before.is_object() || !after.is_object()) {
    return saved == now;
  }
  auto items = before.items();  // not const, as nlohmann json before 3.11 iterates over no const one
  return std::all_of(items.begin(), items.end(), [&](const auto& setting) {
    return !after.contains(setting.key()) || after.at(setting.key()) == setting.value();
  });
} catch (const DataError&) {
  return saved == now;
}

std::string to_json(const Fingerprint& data) {
  return Json{{"classes", data.classes}, {"train", json_of(data.train)}, {"test", json_of(data.test)}}.dump();
}

Fingerprint fingerprint_from_json(const std::string& text, const std::string& where) {
  const Json json = parse_json<Json>(text, where + ": the record of the data");
  try {
    return {.classes = json.at("classes").get<std::vector<std::string>>(),
            .train = part_from(json.at("train")),
            .test = part_from(json.at("test"))};
  } catch (const Json::exception&) {
    throw DataError(where + ": the record of the data is damaged");
  }
}

std::string to_text(const BatchParts& parts) {
  return fmt::format("{} x {} x {}", parts.replicas, parts.microbatches, parts.slices);
}

BatchParts parts_from_text(const std::string& text, const std::string& where) {
  const auto numbers = numbers_in(text, "# x # x #");
  throw_if<DataError>(!numbers, "{}: the record of the parts of a batch is damaged", where);
  return {static_cast<int>(numbers->at(0)), static_cast<int>(numbers->at(1)), static_cast<int>(numbers->at(2))};
}

std::vector<std::string> parts_notes(const std::optional<BatchParts>& saved, const std::optional<BatchParts>& now) {
  if (!saved || !now || *saved == *now) {
    return {};
  }
  if (saved->slices != now->slices) {
    return {
        fmt::format("layers are cut into {}, before into {}, so sums are rounded differently, and the weights end with "
                    "other bytes than those of an undisturbed run",
                    counted(now->slices, "slice"), counted(saved->slices, "slice"))};
  }
  const int count = saved->replicas * saved->microbatches;
  if (is_one_sum(*saved) && is_one_sum(*now) && count == now->replicas * now->microbatches) {
    return {
        fmt::format("a batch has the {} parts that it had ({}, before {}), so the weights end with the same bytes, "
                    "unless there is batch norm",
                    count, described(*now), described(*saved))};
  }
  const BatchParts other = saved->replicas == 1 ? BatchParts{count, 1} : BatchParts{1, count};
  return {fmt::format(
      "a batch has other parts ({}, before {}), whose gradients are added in another order, so the "
      "weights end with other bytes than those of an undisturbed run; to keep them, resume with the same "
      "numbers{}",
      described(*now), described(*saved), is_one_sum(*saved) && count > 1 ? ", or " + described(other) : "")};
}

void require_same_data(const std::optional<Fingerprint>& saved, const Fingerprint& now, const RunOptions& options) {
  const std::string changed = saved ? difference(*saved, now) : "";
  if (changed.empty()) {
    return;
  }
  const std::string problem =
      fmt::format("`resume` {}: the data differ from those of the checkpoint: {}", options.resume, changed);
  throw_if<OtherData>(
      saved->classes.size() != now.classes.size(),
      "{}; the model has one output per class, so restore the original data, or start a new run without "
      "`resume`",
      problem);
  throw_if<OtherData>(!options.accept_new_data,
                      "{}; restore the original data, or give `accept_new_data` to continue with the new data",
                      problem);
}

std::vector<std::string> data_notes(const std::optional<Fingerprint>& saved, const Fingerprint& now) {
  if (!saved) {
    return {"the checkpoint does not say which data it was trained on, so it is not known whether these are the same"};
  }
  const std::string changed = difference(*saved, now);
  if (changed.empty()) {
    return {};
  }
  return {fmt::format("the training continues with data that differ from those of the checkpoint: {}", changed)};
}

}  // namespace stagecoach
