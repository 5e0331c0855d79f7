#include "chapters/common/bounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/parse.h"
#include "core/base/throw_if.h"

namespace stagecoach {
namespace {

/// Returns 65536 for "64KiB"; nothing if the text is not a number of bytes.
std::optional<std::uint64_t> bytes_from(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, unsigned>, 6> kUnits{
      {{"", 0}, {"B", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}}};
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const auto number = number_from<std::uint64_t>(text.substr(0, digits));
  const auto* const unit =
      std::find_if(kUnits.begin(), kUnits.end(), [&](const auto& known) { return known.first == text.substr(digits); });
  if (!number || unit == kUnits.end() || *number > std::numeric_limits<std::uint64_t>::max() >> unit->second) {
    return std::nullopt;
  }
  return *number << unit->second;
}

}  // namespace

std::uint64_t whole_number(const std::string& text, std::uint64_t least, std::uint64_t most) {
  const auto number = number_from<std::uint64_t>(text);
  throw_if<UsageError>(!number || *number < least || *number > most, "expected a whole number from {} to {}, got '{}'",
                       least, most, text);
  return *number;
}

std::uint64_t byte_count(const std::string& text, std::uint64_t least, std::uint64_t most) {
  const auto number = bytes_from(text);
  throw_if<UsageError>(!number || *number < least || *number > most,
                       "expected a number of bytes from {} to {}, such as 65536 or 64KiB, got '{}'", least, most, text);
  return *number;
}

double real_number(const std::string& text, double least, double most, bool or_zero) {
  const auto number = number_from<double>(text);
  const bool is_within = number && ((*number >= least && *number <= most) || (or_zero && *number == 0));
  throw_if<UsageError>(!is_within, "expected {}a number from {} to {}, got '{}'", or_zero ? "0 or " : "", least, most,
                       text);
  return *number;
}

std::size_t index_in(const std::vector<std::string>& words, const std::string& text) {
  const auto found = std::find(words.begin(), words.end(), text);
  throw_if<UsageError>(found == words.end(), "expected {}{}, got '{}'", words.size() > 1 ? "one of " : "",
                       fmt::join(words, ", "), text);
  return static_cast<std::size_t>(found - words.begin());
}

}  // namespace stagecoach
