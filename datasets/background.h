#pragma once
/// @file
/// The colour that transparent pixels of an image are laid on.

#include <cstdint>
#include <string>

namespace stagecoach {

struct BackgroundColor {
  std::uint8_t red = 255;
  std::uint8_t green = 255;
  std::uint8_t blue = 255;
  bool operator==(const BackgroundColor&) const = default;
};

/// Returns "white", "black", "grey" or "#rrggbb" (hexadecimal). Throws UsageError for other texts.
BackgroundColor background_color_from_text(const std::string& text);

}  // namespace stagecoach
