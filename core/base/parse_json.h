#pragma once
/// @file
/// The one way to read JSON from outside. It refuses what the JSON library accepts: text after a NUL byte, at which the
/// library stops, a key that an object has twice, of which the library keeps the last, and nesting so deep that a
/// recursive function would exhaust the stack. For sources that link the library; it is not installed.

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/printable.h"

namespace stagecoach {

/// No file of ours has more than four levels.
inline constexpr int kMaxJsonDepth = 8;

/// Parses all of `text` as one JSON value; `Json` is nlohmann::json or nlohmann::ordered_json. Throws DataError:
/// `subject`, what is wrong with it and where, and `advice`.
template <class Json>
Json parse_json(std::string_view text, const std::string& subject, const std::string& advice = "") {
  const auto refuse = [&](const std::string& problem) {
    throw DataError(fmt::format("{} {}{}{}", subject, problem, advice.empty() ? "" : "; ", advice));
  };
  const auto refuse_syntax = [&](std::size_t position) {
    const std::string_view before = text.substr(0, position);
    refuse(fmt::format("is not valid JSON (line {}, column {})", 1 + std::count(before.begin(), before.end(), '\n'),
                       position - (before.rfind('\n') + 1) + 1));  // npos + 1 is 0
  };
  if (const std::size_t nul = text.find('\0'); nul != text.npos) {
    refuse_syntax(nul);
  }
  std::vector<std::set<std::string>> keys;  // of each object that is open
  const auto watch = [&](int depth, typename Json::parse_event_t event, Json& value) {
    using Event = typename Json::parse_event_t;
    if ((event == Event::object_start || event == Event::array_start) && depth >= kMaxJsonDepth) {
      refuse("is nested too deeply");
    }
    if (event == Event::object_start) {
      keys.emplace_back();
    } else if (event == Event::object_end) {
      keys.pop_back();
    } else if (event == Event::key) {
      const auto& key = value.template get_ref<const std::string&>();
      if (!keys.back().insert(key).second) {
        refuse(fmt::format("contains '{}' twice", printable(key)));
      }
    }
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const typename Json::parse_error& error) {
    refuse_syntax(error.byte == 0 ? 0 : error.byte - 1);
  } catch (const typename Json::exception&) {
    refuse("contains a number that is out of range");
  }
  return {};
}

}  // namespace stagecoach
