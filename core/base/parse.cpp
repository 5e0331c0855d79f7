#include "core/base/parse.h"

#include <locale.h>
#include <stdlib.h>
#ifdef __APPLE__
#include <xlocale.h>  // strtod_l
#endif

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <string>

namespace stagecoach {

std::from_chars_result parse_with_strtod(std::string_view text, double& number) {
  static const locale_t with_points = ::newlocale(LC_ALL_MASK, "C", nullptr);  // 1.5 and not 1,5
  const std::from_chars_result none{text.data(), std::errc::invalid_argument};
  const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
  // What strtod accepts and from_chars does not.
  if (digits.empty() || digits.front() == '+' || digits.front() == '-' ||
      std::isspace(static_cast<unsigned char>(digits.front())) != 0) {
    return none;
  }
  const bool is_hexadecimal = digits.starts_with("0x") || digits.starts_with("0X");
  const std::string copy(is_hexadecimal ? text.substr(0, text.size() - digits.size() + 1)
                                        : text);  // with a 0 at its end
  char* end = nullptr;
  errno = 0;
  const double value = ::strtod_l(copy.c_str(), &end, with_points);
  const char* const after = text.data() + (end - copy.c_str());
  if (after == text.data()) {
    return none;
  }
  if (errno == ERANGE && (std::isinf(value) || value == 0)) {
    return {after, std::errc::result_out_of_range};
  }
  number = value;
  return {after, std::errc()};
}

std::optional<std::vector<std::int64_t>> numbers_in(std::string_view text, std::string_view form) {
  constexpr std::size_t kMostDigits = 18;
  std::vector<std::int64_t> numbers;
  for (const char expected : form) {
    if (expected == '#') {
      const std::size_t count = std::min(text.find_first_not_of("0123456789"), text.size());
      const auto number = number_from<std::int64_t>(text.substr(0, count));
      if (!number || count > kMostDigits || (count > 1 && text.front() == '0')) {
        return std::nullopt;
      }
      numbers.push_back(*number);
      text.remove_prefix(count);
    } else if (text.starts_with(expected)) {
      text.remove_prefix(1);
    } else {
      return std::nullopt;
    }
  }
  return text.empty() ? std::optional(numbers) : std::nullopt;
}

}  // namespace stagecoach
