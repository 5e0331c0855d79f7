#include "chapters/compare/run_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

/// The parts of the path from the root on, without what says nothing: "a/b" for "a/./b/" and "a/b/metrics.jsonl".
std::vector<std::string> parts_of(const std::string& given) {
  fs::path path = fs::absolute(given).lexically_normal();
  if (path.filename().empty() || path.filename() == "metrics.jsonl") {
    path = path.parent_path();
  }
  std::vector<std::string> parts;
  for (const fs::path& part : path.relative_path()) {
    parts.push_back(printable(part.string()));
  }
  return parts;
}

std::string last_parts(const std::vector<std::string>& parts, std::size_t count) {
  std::string name;
  for (std::size_t i = parts.size() - std::min(count, parts.size()); i < parts.size(); ++i) {
    name += (name.empty() ? "" : "/") + parts[i];
  }
  return name.empty() ? "/" : name;
}

/// How many bytes of UTF-8 begin at `at`, as one character; 0 if they are none or a control character.
std::size_t character_length(const std::string& text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned first = byte(at);
  if (first < 0x80) {
    return first >= 0x20 && first != 0x7f ? 1 : 0;
  }
  const std::size_t length = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  std::uint32_t code = length == 0 ? 0 : first & (0xffU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xc0U) != 0x80) {
      return 0;
    }
    code = code << 6U | (byte(at + i) & 0x3fU);
  }
  const bool too_long = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool control = code < 0xa0;
  const bool in_no_xml = (code >= 0xd800 && code < 0xe000) || code == 0xfffe || code == 0xffff || code > 0x10ffff;
  return too_long || control || in_no_xml ? 0 : length;
}

}  // namespace

std::vector<std::string> run_names(const std::vector<std::string>& paths) {
  std::vector<std::vector<std::string>> parts;
  std::transform(paths.begin(), paths.end(), std::back_inserter(parts), parts_of);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto is_taken = [&](std::size_t count) {
      return std::any_of(parts.begin(), parts.end(), [&](const auto& other) {
        return other != parts[i] && last_parts(other, count) == last_parts(parts[i], count);
      });
    };
    std::size_t count = 1;
    while (count < parts[i].size() && is_taken(count)) {
      ++count;
    }
    const auto same_before = std::count(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(i), parts[i]);
    names.push_back(last_parts(parts[i], count) + (same_before == 0 ? "" : fmt::format(" ({})", same_before + 1)));
  }
  return names;
}

bool is_same_run(const std::string& a, const std::string& b) { return parts_of(a) == parts_of(b); }

std::string printable(const std::string& text) {
  std::string clean;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = character_length(text, at);
    clean += length == 0 ? "?" : text.substr(at, length);
    at += std::max<std::size_t>(length, 1);
  }
  return clean;
}

}  // namespace stagecoach
