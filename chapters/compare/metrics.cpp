// Reads metrics.jsonl, config.json and prediction.json for read_run (run_record.h).

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <utility>

#include "chapters/compare/run_record.h"
#include "core/base/parse_json.h"
#include "core/base/throw_if.h"
#include "core/trace.h"

namespace stagecoach {
namespace {

using Json = nlohmann::json;

constexpr const char* kDamaged = "the file is damaged: use a copy, or run the program again";

/// One line of metrics.jsonl. Throws DataError that names the line if anything is wrong with it.
class Line {
 public:
  Line(const std::string& text, std::string where)
      : where_(std::move(where)),
        json_(parse_json<Json>(text, where_ + ": expected a JSON object, but the line", kDamaged)) {
    require(json_.is_object(), "expected a JSON object");
  }

  void require(bool condition, const std::string& what) const {
    throw_if<DataError>(!condition, "{}: {}; {}", where_, what, kDamaged);
  }

  bool is_epoch() const { return json_.contains("event") && json_["event"] == "epoch"; }

  std::int64_t epoch() const {
    require(json_.contains("epoch") && json_["epoch"].is_number_integer(), "'epoch' must be a whole number");
    const auto epoch = json_["epoch"].get<std::int64_t>();
    require(is_epoch_number(epoch), fmt::format("'epoch' is out of range: expected 0 to 1000000000, got {}", epoch));
    return epoch;
  }

  /// JSON cannot express NaN; null means NaN or unknown.
  std::optional<double> number(const char* key) const {
    if (!json_.contains(key) || json_[key].is_null()) {
      return std::nullopt;
    }
    require(json_[key].is_number(), fmt::format("'{}' must be a number", key));
    return json_[key].get<double>();
  }

  double loss() const {
    require(json_.contains("loss"), "'loss' is missing");
    return number("loss").value_or(std::numeric_limits<double>::quiet_NaN());
  }

  /// Returns seconds or a measured share, which must be finite and not negative.
  std::optional<double> measured(const char* key) const {
    const std::optional<double> value = number(key);
    require(!value || (*value >= 0 && std::isfinite(*value)), fmt::format("'{}' must be finite and not negative", key));
    return value;
  }

  /// Returns a computed share.
  std::optional<double> share(const char* key) const {
    const std::optional<double> value = number(key);
    require(!value || is_share(*value), fmt::format("'{}' must be from 0 to 1", key));
    return value;
  }

  /// Returns a predicted share; for one rank, older programs predicted some percent below 0.
  std::optional<double> predicted_share(const char* key) const {
    const std::optional<double> value = number(key);
    require(!value || is_share(std::max(*value, 0.0)), fmt::format("'{}' must be from 0 to 1", key));
    return value ? std::optional(std::max(*value, 0.0)) : std::nullopt;
  }

  double seconds(const char* key = "seconds") const {
    const std::optional<double> value = measured(key);
    require(value.has_value(), fmt::format("'{}' is missing", key));
    return *value;
  }

  std::string settings() const {
    require(json_.contains("settings"), "'settings' is missing: an older version wrote it");
    return json_["settings"].dump();
  }

  std::optional<std::string> clock() const {
    const bool known = json_.contains("clock");
    require(!known || json_["clock"].is_string(), "'clock' must be a string");
    return known ? std::optional(json_["clock"].get<std::string>()) : std::nullopt;
  }

  std::vector<double> numbers(const char* key) const {
    const Json list = json_.value(key, Json::array());
    const auto is_size = [](const Json& number) { return number.is_number() && number >= 0 && number < 1e18; };
    require(list.is_array() && std::all_of(list.begin(), list.end(), is_size),
            fmt::format("'{}' must be a list of numbers from 0 to 1e18", key));
    return list.get<std::vector<double>>();
  }

  std::vector<std::int64_t> whole_numbers(const char* key) const {
    const Json list = json_.value(key, Json::array());
    // The comparison also rejects numbers above 2^63 - 1.
    const auto is_whole = [](const Json& number) { return number.is_number_integer() && number >= 0; };
    require(list.is_array() && std::all_of(list.begin(), list.end(), is_whole),
            fmt::format("'{}' must be a list of whole numbers from 0 to 2^63 - 1", key));
    return list.get<std::vector<std::int64_t>>();
  }

  std::optional<std::int64_t> whole_number(const char* key) const {
    if (!json_.contains(key)) {
      return std::nullopt;
    }
    require(json_[key].is_number_integer() && json_[key] >= 0, fmt::format("'{}' must be a whole number", key));
    return json_[key].get<std::int64_t>();
  }

  /// Returns the links [[from, to, bytes], …].
  std::vector<std::array<double, 3>> links() const {
    std::vector<std::array<double, 3>> all;
    for (const Json& link : json_.value("links", Json::array())) {
      const auto is_rank = [](const Json& rank) { return rank.is_number_unsigned() && rank < Trace::kBeside; };
      require(link.is_array() && link.size() == 3 && is_rank(link[0]) && is_rank(link[1]) && link[2].is_number() &&
                  link[2] >= 0,
              "'links' must be a list of [from, to, bytes]");
      all.push_back(link.get<std::array<double, 3>>());
    }
    return all;
  }

  /// Returns the numbers of an object, which are by name.
  std::map<std::string, double> named_numbers(const char* key) const {
    return named(json_.value(key, Json::object()), key);
  }

  std::vector<std::map<std::string, double>> lists_of_named_numbers(const char* key) const {
    std::vector<std::map<std::string, double>> all;
    for (const Json& one : json_.value(key, Json::array())) {
      all.push_back(named(one, key));
    }
    return all;
  }

 private:
  std::map<std::string, double> named(const Json& json, const char* key) const {
    require(json.is_object() && std::all_of(json.begin(), json.end(), [](const Json& one) { return one.is_number(); }),
            fmt::format("'{}' must be made of named numbers", key));
    return json.get<std::map<std::string, double>>();
  }

  std::string where_;
  Json json_;
};

EpochRecord epoch_in(const Line& line) {
  return {.epoch = line.epoch(),
          .loss = line.loss(),
          .seconds = line.seconds(),
          .accuracy = line.number("acc"),
          .test_accuracy = line.number("test_acc"),
          .clock = line.clock(),
          .images_per_second = line.number("images_per_second"),
          .idle = line.measured("idle"),
          .ideal_idle = line.share("ideal_idle"),
          .predicted_idle = line.predicted_share("predicted_idle"),
          .predicted_seconds = line.measured("predicted_seconds"),
          .peak_bytes = line.whole_numbers("peak_bytes"),
          .versions = line.whole_numbers("versions"),
          .steps = line.whole_number("steps"),
          .links = line.links(),
          .delays = line.whole_numbers("delays"),
          .step_parts = line.named_numbers("step_parts"),
          .memory = line.lists_of_named_numbers("predicted_memory")};
}

}  // namespace

void read_metrics(const std::string& text, const std::string& where, RunRecord& run) {
  std::istringstream lines(text);
  std::string words;
  for (int number = 1; std::getline(lines, words); ++number) {
    if (words.find_first_not_of(" \t\r") == std::string::npos) {
      continue;
    }
    const Line line(words, fmt::format("{}, line {}", where, number));
    if (line.is_epoch()) {
      add_epoch(run, epoch_in(line), fmt::format("{}, line {}", where, number));
    }
  }
  std::vector<double*> accuracies;
  for (EpochRecord& epoch : run.epochs) {
    for (std::optional<double>* accuracy : {&epoch.accuracy, &epoch.test_accuracy}) {
      if (*accuracy) {
        accuracies.push_back(&**accuracy);
      }
    }
  }
  convert_percentages(accuracies, where, run);
}

void read_plan(const std::string& text, const std::string& where, RunRecord& run) {
  const Line line(text, where);
  run.is_plan = true;
  run.settings = read_config(line.settings(), where);
  EpochRecord step{.epoch = 1,
                   .loss = std::numeric_limits<double>::quiet_NaN(),
                   .seconds = line.seconds("step_seconds"),
                   .clock = line.clock(),
                   .idle = line.share("idle"),
                   .link_bytes = line.measured("link_bytes")};
  for (const double bytes : line.numbers("memory_bytes")) {
    step.peak_bytes.push_back(static_cast<std::int64_t>(bytes));
  }
  step.staleness = static_cast<std::int64_t>(line.measured("staleness").value_or(0));
  run.epochs.push_back(std::move(step));
}

std::map<std::string, std::string> read_config(const std::string& text, const std::string& where) {
  constexpr const char* kAdvice = "restore the file, or remove it to compare without settings";
  const auto json = parse_json<Json>(text, where, kAdvice);
  throw_if<DataError>(!json.is_object(), "{}: expected the settings of a run as a JSON object; {}", where, kAdvice);
  std::map<std::string, std::string> settings;
  for (const auto& [name, value] : json.items()) {
    std::string words = value.is_string() ? value.get<std::string>() : value.dump();
    if (!words.empty()) {  // such as the schedule of a chapter without schedules
      settings[name] = std::move(words);
    }
  }
  return settings;
}

}  // namespace stagecoach
