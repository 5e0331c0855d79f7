#pragma once
/// @file
/// Reads numbers and lists that are written as text.

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

namespace stagecoach {

/// Does what std::from_chars does for double, by strtod: for standard libraries that lack it (libc++ up to 19).
std::from_chars_result parse_with_strtod(std::string_view text, double& number);

/// Parses a number at the front of `text`, such as "1.97", "2e-05" or "-inf", as std::from_chars does.
template <class Number>
std::from_chars_result parse_number(std::string_view text, Number& number) {
  if constexpr (requires { std::from_chars(text.data(), text.data(), number); }) {
    return std::from_chars(text.data(), text.data() + text.size(), number);
  } else {
    return parse_with_strtod(text, number);
  }
}

/// Parses all of `text` as a number. Returns nothing if it is not a number, or does not fit the type.
template <class Number>
std::optional<Number> number_from(std::string_view text) {
  Number number{};
  const auto [end, error] = parse_number(text, number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

/// Returns the numbers in `text` if it has the given form, in which each '#' stands for a whole number: 3 and 40 for
/// "epoch-3-step-40" and the form "epoch-#-step-#". Only the usual way to write a number counts, without a sign or
/// leading zeros, so that no two texts of a form have the same numbers. Returns nothing for any other text, nor for
/// numbers of more than 18 digits, so that adding one to a number is always safe.
std::optional<std::vector<std::int64_t>> numbers_in(std::string_view text, std::string_view form);

/// Returns the parts of `text` between separators, as views. "a,,b," has four parts, two of which are empty.
inline std::vector<std::string_view> split_text(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t end = text.find(separator); end != std::string_view::npos; end = text.find(separator)) {
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  parts.push_back(text);
  return parts;
}

}  // namespace stagecoach
