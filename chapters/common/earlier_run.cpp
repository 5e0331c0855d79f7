#include "chapters/common/earlier_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

#include "chapters/common/console.h"
#include "chapters/common/run_files.h"
#include "core/error.h"
#include "core/printable.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

/// Returns whether an earlier run wrote this to its folder. A device or a FIFO of such a name belongs to the user, and
/// is written to.
bool is_of_a_run(const fs::directory_entry& entry) {
  static const std::regex flight_record("flight_[0-9]+\\.jsonl");
  const std::string name = entry.path().filename().string();
  const bool has_name =
      std::find(std::begin(run_files::kAll), std::end(run_files::kAll), name) != std::end(run_files::kAll) ||
      std::regex_match(name, flight_record);
  return has_name && (entry.is_regular_file() || entry.is_directory());
}

/// Moves `file` into `folder`, which is in the same folder. Changes a relative link so that it still refers to the same
/// file.
void move_into(const fs::path& folder, const fs::path& file) {
  if (fs::is_symlink(file) && fs::read_symlink(file).is_relative()) {
    fs::create_symlink(".." / fs::read_symlink(file), folder / file.filename());
    fs::remove(file);
  } else {
    fs::rename(file, folder / file.filename());
  }
}

}  // namespace

void move_earlier_run(const fs::path& folder) try {
  std::vector<fs::path> left;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (is_of_a_run(entry)) {
      left.push_back(entry.path());
    }
  }
  if (left.empty()) {
    return;
  }
  fs::path earlier;
  for (int n = 1; earlier.empty() || fs::exists(fs::symlink_status(earlier)); ++n) {
    earlier = folder / fmt::format("earlier-{}", n);
  }
  fs::create_directory(earlier);
  for (const fs::path& file : left) {
    move_into(earlier, file);
  }
  print_line(
      fmt::format("The earlier run in {} is now in {}", printable(folder.string()), printable(earlier.string())));
} catch (const fs::filesystem_error& error) {
  throw DataError(
      fmt::format("--out {}: cannot move the earlier run in this folder aside: {}; check the folder's permissions",
                  folder.string(), error.code().message()));
}

}  // namespace stagecoach
