#include "chapters/compare/run_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "core/base/printable.h"
#include "parallel/training/run_files.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

/// Returns the parts of the normalized absolute path of the run: the same for "a/b", "a/./b/" and "a/b/metrics.jsonl".
std::vector<std::string> parts_of(const std::string& given) {
  fs::path path = fs::absolute(given).lexically_normal();
  if (path.filename().empty() || path.filename() == run_files::kMetrics) {
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

}  // namespace stagecoach
