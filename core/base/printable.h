#pragma once
/// @file
/// Makes text from outside (names of files and classes, values in files) safe to display.

#include <string>
#include <string_view>

namespace stagecoach {

/// Returns `text` as valid UTF-8 on one line that a terminal displays without interpreting it. Control characters such
/// as ESC (`\x1b`), tab and newline (`\t`, `\n`), bytes that are not UTF-8 (`\xff`), and characters that reorder or
/// hide the text around them (`\u202e`) are escaped as in a C string. Everything else is unchanged, backslashes
/// included, so applying it twice to an error text is harmless.
std::string printable(std::string_view text);

/// Returns printable(text) for use as text or attribute of an SVG, XML or HTML element: `<` becomes `&lt;`, and so on.
std::string xml_text(std::string_view text);

}  // namespace stagecoach
