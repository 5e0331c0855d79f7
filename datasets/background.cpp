#include "datasets/background.h"

#include <cctype>

#include "core/base/throw_if.h"

namespace stagecoach {

BackgroundColor background_color_from_text(const std::string& text) {
  if (text == "white") {
    return {255, 255, 255};
  }
  if (text == "black") {
    return {0, 0, 0};
  }
  if (text == "grey") {
    return {128, 128, 128};
  }
  bool is_number = text.size() == 7 && text[0] == '#';
  for (std::size_t i = 1; is_number && i < text.size(); ++i) {
    is_number = std::isxdigit(static_cast<unsigned char>(text[i])) != 0;
  }
  throw_if<UsageError>(!is_number, "expected white, black, grey or #rrggbb, got '{}'", text);
  const auto part = [&](std::size_t at) {
    return static_cast<std::uint8_t>(std::stoi(text.substr(at, 2), nullptr, 16));
  };
  return {part(1), part(3), part(5)};
}

}  // namespace stagecoach
