#pragma once
/// @file
/// Text that comes from outside (names of files and classes, values in files), made safe to show.

#include <string>
#include <string_view>

namespace stagecoach {

/// `text` as valid UTF-8 on one line that a terminal only shows and never obeys. Escaped as in a C string are control
/// characters such as ESC (`\x1b`), tab and newline (`\t`, `\n`), bytes that are not UTF-8 (`\xff`), and characters
/// that reorder or hide what is around them (`\u202e`). Everything else stays as it is, backslashes included, so the
/// text of an error can pass twice.
std::string printable(std::string_view text);

/// printable(text) as text or attribute of an SVG, XML or HTML element: `<` becomes `&lt;`, and so on.
std::string xml_text(std::string_view text);

}  // namespace stagecoach
