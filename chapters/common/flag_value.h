#pragma once
/// @file
/// Conversions between a flag's text and a member of Settings. There is one function per kind of value; each takes a
/// pointer to the member.

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "chapters/common/bounds.h"
#include "chapters/common/settings.h"
#include "core/base/error.h"

namespace stagecoach {

/// A member of Settings as text: the form that the command line, config.json and the printed table use.
struct FlagValue {
  enum class Kind { whole_number, real_number, text, on_off };
  Kind kind;
  std::string type;  ///< for --help: "INT:1 to 64", "TEXT:{sgd,adam}"
  std::function<std::string(const Settings&)> text;
  /// Throws UsageError for a text that is not valid for the flag: "expected …, got …".
  std::function<void(Settings&, const std::string&)> set;
  std::function<void(Settings& to, const Settings& from)> copy;
};

/// Returns a value that `write` converts to text and `read` parses. Used by the functions below.
template <class Part, class T, class Write, class Read>
FlagValue value_of(T Part::*member, FlagValue::Kind kind, std::string type, Write write, Read read) {
  constexpr std::tuple kParts{&Settings::data,          &Settings::training, &Settings::pipeline,
                              &Settings::data_parallel, &Settings::world,    &Settings::run};
  constexpr auto part = std::get<Part Settings::*>(kParts);
  return {kind, std::move(type), [=](const Settings& settings) -> std::string { return write(settings.*part.*member); },
          [=](Settings& settings, const std::string& text) { settings.*part.*member = read(text); },
          [=](Settings& to, const Settings& from) { to.*part.*member = from.*part.*member; }};
}

/// Returns the value of a flag that takes whole numbers from `least` to `most`. `read` is whole_number, or byte_count
/// for a number that may have a unit.
template <class Part, class T>
FlagValue whole(T Part::*member, std::uint64_t least, std::uint64_t most, decltype(whole_number)* read = whole_number) {
  return value_of(
      member, FlagValue::Kind::whole_number,
      fmt::format("{}:{} to {}", std::is_unsigned_v<T> ? "UINT" : "INT", least, most),
      [](T value) { return std::to_string(value); },
      [=](const std::string& text) { return static_cast<T>(read(text, least, most)); });
}

/// Returns the value of a flag that takes numbers from `least` to `most`, and with `or_zero` also 0.
template <class Part>
FlagValue real(double Part::*member, double least, double most, bool or_zero = false) {
  return value_of(
      member, FlagValue::Kind::real_number, fmt::format("FLOAT:{} to {}", least, most),
      [](double value) { return fmt::format("{}", value); },
      [=](const std::string& text) { return real_number(text, least, most, or_zero); });
}

inline std::string words_type(const std::vector<std::string>& words) {
  return fmt::format("TEXT:{{{}}}", fmt::join(words, ","));
}

/// Returns the value of a flag that takes one of `words`, which are the first names of the values of `Choice`.
template <class Part, class Choice>
FlagValue word(Choice Part::*member, const std::vector<std::string>& words = names_of(Choice{})) {
  return value_of(
      member, FlagValue::Kind::text, words_type(words), [](Choice choice) { return name_of(choice); },
      [=](const std::string& text) { return static_cast<Choice>(index_in(words, text)); });
}

template <class Part, class Choice>
FlagValue word(std::optional<Choice> Part::*member) {
  return value_of(
      member, FlagValue::Kind::text, words_type(names_of(Choice{})),
      [](std::optional<Choice> choice) { return name_of(choice); },
      [](const std::string& text) { return static_cast<Choice>(index_in(names_of(Choice{}), text)); });
}

/// Returns the value of a flag that takes one of `words`, and keeps it as text.
template <class Part>
FlagValue word(std::string Part::*member, const std::vector<std::string>& words) {
  return value_of(
      member, FlagValue::Kind::text, words_type(words), [](const std::string& value) { return value; },
      [=](const std::string& text) { return words[index_in(words, text)]; });
}

/// Returns the value of a flag whose text is parsed by `read`.
template <class Part, auto read>
FlagValue parsed(Parsed<read> Part::*member) {
  return value_of(
      member, FlagValue::Kind::text, "TEXT", [](const Parsed<read>& value) { return value.text(); },
      [](const std::string& text) { return Parsed<read>(text); });
}

/// Returns the value of a flag that takes any text.
template <class Part>
FlagValue any_text(std::string Part::*member) {
  const auto same = [](const std::string& value) { return value; };
  return value_of(member, FlagValue::Kind::text, "TEXT", same, same);
}

/// Returns the value of a switch: "true" or "false".
template <class Part>
FlagValue on_off(bool Part::*member) {
  return value_of(
      member, FlagValue::Kind::on_off, "", [](bool value) { return value ? "true" : "false"; },
      [](const std::string& value) { return value == "true"; });
}

}  // namespace stagecoach
