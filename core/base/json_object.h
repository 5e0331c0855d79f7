#pragma once
/// @file
/// Objects of a JSON file that people may write by hand, with errors that say what to correct. As parse_json.h, it is
/// for sources that link the library, and it is not installed.

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "core/base/throw_if.h"

namespace stagecoach {

/// An object whose keys are taken one by one. Its functions throw DataError for a value that is missing or not right.
class JsonObject {
 public:
  using Json = nlohmann::ordered_json;

  /// `where` names the object in errors.
  JsonObject(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    throw_if<DataError>(!json.is_object(), "{}: expected an object, {{\"key\": value, …}}, got {}", where_,
                        shown(json));
  }

  bool has(const std::string& key) const { return json_.contains(key); }

  /// Returns the value of `key`, which should be `expected`.
  const Json& take(const std::string& key, const std::string& expected) {
    known_.push_back(key);
    throw_if<DataError>(!has(key), "{}: '{}' is missing: expected {}; add it", where_, key, expected);
    return json_.at(key);
  }

  std::string name(const std::string& key) {
    const std::string expected = fmt::format("1 to {} letters, digits, '.', ':', '_' or '-' in quotes", kMaxName);
    const Json& json = take(key, expected);
    const auto is_part = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == ':' ||
             c == '_' || c == '-';
    };
    const auto* text = json.get_ptr<const std::string*>();
    require(text != nullptr && !text->empty() && text->size() <= kMaxName &&
                std::all_of(text->begin(), text->end(), is_part),
            key, expected, json);
    return *text;
  }

  /// Returns one of two words.
  std::string either(const std::string& key, const std::string& one, const std::string& other) {
    const std::string expected = fmt::format("\"{}\" or \"{}\"", one, other);
    const Json& json = take(key, expected);
    require(json == one || json == other, key, expected, json);
    return json.get<std::string>();
  }

  std::int64_t whole(const std::string& key, std::int64_t min, std::int64_t max, const std::string& unit) {
    const std::string expected = fmt::format("a whole number{} from {} to {}", unit, min, max);
    const Json& json = take(key, expected);
    require(json.is_number_integer() && json >= min && json <= max, key, expected, json);
    return json.get<std::int64_t>();
  }

  double number(const std::string& key, double min, double max, const std::string& what) {
    const std::string expected = fmt::format("{} from {} to {}", what, min, max);
    const Json& json = take(key, expected);
    require(json.is_number() && json >= min && json <= max, key, expected, json);
    return json.get<double>();
  }

  /// Throws DataError for a key that was not taken; `optional` are others that were possible.
  void require_no_others(const std::vector<std::string>& optional = {}) const {
    std::vector<std::string> known = known_;
    std::copy_if(optional.begin(), optional.end(), std::back_inserter(known),
                 [&](const std::string& key) { return std::find(known_.begin(), known_.end(), key) == known_.end(); });
    for (const auto& [key, value] : json_.items()) {
      throw_if<DataError>(std::find(known.begin(), known.end(), key) == known.end(),
                          "{}: unknown key {}: expected only {}; correct or remove it", where_, shown(key),
                          fmt::join(known, ", "));
    }
  }

 private:
  static constexpr std::size_t kMaxName = 64;

  void require(bool is_right, const std::string& key, const std::string& expected, const Json& got) const {
    throw_if<DataError>(!is_right, "{}: '{}': expected {}, got {}; correct it", where_, key, expected, shown(got));
  }

  /// Returns a value as ASCII for an error, shortened.
  static std::string shown(const Json& json) {
    const std::string text = json.dump(-1, ' ', true, Json::error_handler_t::replace);
    constexpr std::size_t kMaxShown = 60;
    return text.size() <= kMaxShown ? text : text.substr(0, kMaxShown) + "…";
  }

  const Json& json_;
  std::string where_;
  std::vector<std::string> known_ = {};
};

}  // namespace stagecoach
