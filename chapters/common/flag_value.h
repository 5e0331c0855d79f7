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
#include "core/base/throw_if.h"

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

/// Returns the text of a number, a switch, a choice, or a setting with a syntax of its own; a text as it is.
template <class T>
std::string text_of(const T& value) {
  if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
    return fmt::format("{}", value);
  } else if constexpr (requires { value.text(); }) {
    return value.text();
  } else {
    return name_of(value);
  }
}

/// Returns a value that `read` parses. Used by the functions below.
template <class Part, class T, class Read>
FlagValue value_of(T Part::*member, FlagValue::Kind kind, std::string type, Read read) {
  constexpr std::tuple kParts{&Settings::data,          &Settings::training, &Settings::pipeline,
                              &Settings::data_parallel, &Settings::world,    &Settings::run};
  constexpr auto part = std::get<Part Settings::*>(kParts);
  return {kind, std::move(type), [=](const Settings& settings) { return text_of(settings.*part.*member); },
          [=](Settings& settings, const std::string& text) { settings.*part.*member = read(text); },
          [=](Settings& to, const Settings& from) { to.*part.*member = from.*part.*member; }};
}

/// Returns the value of a flag that takes whole numbers from `least` to `most`. `read` is whole_number, or byte_count
/// for a number that may have a unit.
template <class Part, class T>
FlagValue whole(T Part::*member, std::uint64_t least, std::uint64_t most, decltype(whole_number)* read = whole_number) {
  return value_of(member, FlagValue::Kind::whole_number,
                  fmt::format("{}:{} to {}", std::is_unsigned_v<T> ? "UINT" : "INT", least, most),
                  [=](const std::string& text) { return static_cast<T>(read(text, least, most)); });
}

/// Returns the value of a flag that takes numbers from `least` to `most`, and with `or_zero` also 0.
template <class Part>
FlagValue real(double Part::*member, double least, double most, bool or_zero = false) {
  return value_of(member, FlagValue::Kind::real_number, fmt::format("FLOAT:{} to {}", least, most),
                  [=](const std::string& text) { return real_number(text, least, most, or_zero); });
}

/// Returns the value of a flag that takes one of `words`; `choose` gets the index of the given one.
template <class Part, class T, class Choose>
FlagValue word(T Part::*member, const std::vector<std::string>& words, Choose choose) {
  return value_of(member, FlagValue::Kind::text, fmt::format("TEXT:{{{}}}", fmt::join(words, ",")),
                  [=](const std::string& text) { return choose(index_in(words, text)); });
}

/// Returns the value of a flag that takes one of `words`, which are the first names of the values of `Choice`.
template <class Part, class Choice>
FlagValue word(Choice Part::*member, const std::vector<std::string>& words = names_of(Choice{})) {
  return word(member, words, [](std::size_t i) { return static_cast<Choice>(i); });
}
template <class Part, class Choice>
FlagValue word(std::optional<Choice> Part::*member) {
  return word(member, names_of(Choice{}), [](std::size_t i) { return static_cast<Choice>(i); });
}

/// Returns the value of a flag that takes any text but an empty one, or one that the type of the member parses.
template <class Part, class T>
FlagValue text(T Part::*member) {
  return value_of(member, FlagValue::Kind::text, "TEXT", [](const std::string& text) {
    throw_if<UsageError>(text.empty(), "expected a text, got ''; leave out the flag");
    return T(text);
  });
}

/// Returns the value of a switch: "true" or "false".
template <class Part>
FlagValue on_off(bool Part::*member) {
  return value_of(member, FlagValue::Kind::on_off, "", [](const std::string& text) { return text == "true"; });
}

}  // namespace stagecoach
