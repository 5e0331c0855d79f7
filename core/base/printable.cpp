#include "core/base/printable.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

namespace stagecoach {
namespace {

/// A UTF-8 character and its length in bytes; 0 if the bytes are not valid UTF-8.
struct Character {
  std::uint32_t code = 0;
  std::size_t length = 0;
};

/// Decodes the first character of `text`, which must not be empty.
Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])); };
  const std::uint32_t first = byte(0);
  if (first < 0x80) {
    return {first, 1};
  }
  const std::size_t length = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  if (length == 0 || text.size() < length) {
    return {};
  }
  std::uint32_t code = first & (0xffU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) {
      return {};
    }
    code = code << 6U | (byte(i) & 0x3fU);
  }
  const bool too_long = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  return too_long || surrogate || code > 0x10ffff ? Character{} : Character{code, length};
}

struct Range {
  std::uint32_t first;
  std::uint32_t last;
};

/// Characters that are escaped: controls, line breaks, characters that change the writing direction or have no width
/// (Unicode's categories Cc, Zl, Zp, and most of Cf), and the noncharacters that XML forbids. The joiners U+200C and
/// U+200D are not escaped: some scripts and emoji need them.
constexpr Range kHidden[] = {{0x00, 0x1f},     {0x7f, 0x9f},     {0xad, 0xad},      {0x61c, 0x61c},   {0x180e, 0x180e},
                             {0x200b, 0x200b}, {0x200e, 0x200f}, {0x2028, 0x202e},  {0x2060, 0x206f}, {0xfeff, 0xfeff},
                             {0xfff9, 0xfffb}, {0xfffe, 0xffff}, {0xe0000, 0xe007f}};

bool is_hidden(std::uint32_t code) {
  for (const Range& range : kHidden) {
    if (code >= range.first && code <= range.last) {
      return true;
    }
  }
  return false;
}

std::string escaped(std::uint32_t code) {
  if (code == '\n' || code == '\t' || code == '\r') {
    return code == '\n' ? "\\n" : code == '\t' ? "\\t" : "\\r";
  }
  if (code < 0x80) {
    return fmt::format("\\x{:02x}", code);
  }
  return code <= 0xffff ? fmt::format("\\u{:04x}", code) : fmt::format("\\U{:08x}", code);
}

}  // namespace

std::string printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const Character character = first_character(text);
    if (character.length == 0) {
      shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    } else if (is_hidden(character.code)) {
      shown += escaped(character.code);
    } else {
      shown += text.substr(0, character.length);
    }
    text.remove_prefix(character.length == 0 ? 1 : character.length);
  }
  return shown;
}

std::string xml_text(std::string_view text) {
  std::string safe;
  for (const char c : printable(text)) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

}  // namespace stagecoach
