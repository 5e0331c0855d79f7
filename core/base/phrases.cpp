#include "core/base/phrases.h"

#include <fmt/format.h>

#include <algorithm>

namespace stagecoach {

std::string counted(std::int64_t count, std::string_view noun) {
  const bool is_hard = noun.ends_with("epoch");  // spoken with a k
  const bool hisses = noun.ends_with('s') || noun.ends_with('x') || noun.ends_with("ch") || noun.ends_with("sh");
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : hisses && !is_hard ? "es" : "s");
}

std::string first_few(const std::vector<std::string>& texts) {
  constexpr std::size_t kShown = 3;
  const auto shown = texts.begin() + static_cast<std::ptrdiff_t>(std::min(texts.size(), kShown));
  const std::string more = texts.size() > kShown ? fmt::format(", and {} more", texts.size() - kShown) : "";
  return fmt::format("{}{}", fmt::join(texts.begin(), shown, ", "), more);
}

}  // namespace stagecoach
