#include "parallel/training/run_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "core/base/atomic_file.h"
#include "core/base/parse.h"
#include "core/base/printable.h"
#include "core/base/text_file.h"
#include "core/base/throw_if.h"
#include "nn/safetensors.h"
#include "parallel/comm/communicator_controls.h"
#include "parallel/training/console.h"
#include "parallel/training/run_files.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

/// Returns the lines of metrics.jsonl without those about `epoch` and later epochs, which are trained again, and
/// reports epochs that are missing. Throws DataError if a line is damaged: the file is about to be written anew,
/// without it.
std::string metrics_before(const fs::path& path, std::int64_t epoch, const RunOptions& options) {
  std::string kept;
  std::set<std::int64_t> epochs;
  if (fs::exists(path)) {
    std::istringstream lines(read_text(path, "move it away to continue without its metrics"));
    int number = 0;
    for (std::string line; std::getline(lines, line);) {
      ++number;
      const bool is_blank = line.find_first_not_of(" \t\r") == std::string::npos;
      const auto about =
          is_blank ? std::nullopt : epoch_of_json(line, fmt::format("{}, line {}", path.string(), number));
      if (about.value_or(0) < epoch) {
        kept += line + "\n";
      }
      if (about && *about < epoch) {
        epochs.insert(*about);
      }
    }
  }
  if (static_cast<std::int64_t>(epochs.size()) + 1 < epoch) {
    options.print_line(fmt::format("note: {} has the metrics of {} of the {} epochs before", printable(path.string()),
                                   epochs.size(), epoch - 1));
  }
  return kept;
}

/// Returns whether an earlier run wrote this to its folder. A device or a FIFO of such a name belongs to the user, and
/// is written to.
bool is_of_a_run(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  const bool has_name =
      std::find(std::begin(run_files::kAll), std::end(run_files::kAll), name) != std::end(run_files::kAll) ||
      numbers_in(name, "flight_#.jsonl");
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

/// Makes room for a new run: moves the files of an earlier run from `folder` to its subfolder `earlier-1` (or -2, …),
/// and reports that. Everything else in the folder stays. Throws DataError if a file cannot be moved.
void move_earlier_run(const fs::path& folder, const RunOptions& options) try {
  std::vector<fs::path> left;
  std::copy_if(fs::directory_iterator(folder), {}, std::back_inserter(left), is_of_a_run);
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
  options.print_line(
      fmt::format("The earlier run in {} is now in {}", printable(folder.string()), printable(earlier.string())));
} catch (const fs::filesystem_error& error) {
  throw DataError(
      fmt::format("`out` {}: cannot move the earlier run in this folder aside: {}; check the folder's permissions",
                  folder.string(), error.code().message()));
}

}  // namespace

fs::path make_folder(const std::string& out) {
  try {
    fs::create_directories(out);
  } catch (const fs::filesystem_error& error) {
    throw DataError(fmt::format("`out` {}: cannot create the folder: {}; check the path and its permissions", out,
                                error.code().message()));
  }
  return out;
}

RunFolder::RunFolder(const RunOptions& options, int rank) : options_(options), rank_(rank), resumed_(options.resume) {
  if (!options.out.empty()) {
    folder_ = make_folder(options.out);
  }
}

Checkpoints RunFolder::resumed() const { return {resumed_ / run_files::kCheckpoints, options_.training}; }

Checkpoints RunFolder::checkpoints() const {
  return {folder_ / run_files::kCheckpoints, options_.training, data_, parts_};
}

void RunFolder::lock() {
  if (is_writer()) {
    lock_.take(folder_);
  }
}

void RunFolder::set_data(const TrainTest& data) {
  if (rank_ == 0 && (writes() || !resumed_.empty())) {
    data_ = fingerprint_of(data);
  }
}

void RunFolder::begin(const Progress& progress, const std::string& profile) {
  if (!is_writer()) {
    return;
  }
  if (!resumed_.empty()) {
    metrics_ = metrics_before(resumed_ / run_files::kMetrics, progress.epoch, options_);
  }
  remove_abandoned_files(folder_);
  checkpoints().remove_abandoned();
  if (resumed_.empty() || !fs::equivalent(folder_, resumed_)) {
    move_earlier_run(folder_, options_);
  } else {
    fs::remove(folder_ / run_files::kReport);  // it would show only the epochs before; `compare --html` writes it again
  }
  write_text(folder_ / run_files::kConfig, options_.config);
  write_text(folder_ / run_files::kMetrics, metrics_);
  if (!profile.empty()) {
    write_text(folder_ / run_files::kProfile, profile);
  }
}

bool RunFolder::has_config() const try {
  return read_text(folder_ / run_files::kConfig, "this run wrote it") == options_.config;
} catch (const Error&) {
  return false;
}

void RunFolder::ensure_folder() {
  if (!lock_.holds(folder_)) {
    make_folder(options_.out);
    try {
      lock_.take(folder_);
    } catch (const UsageError&) {
      throw DataError(fmt::format(
          "`out` {}: the folder was removed or replaced during this run, and another run is writing there now; "
          "continue from the saved checkpoint, wherever it was moved to, with `resume` and another `out`",
          folder_.string()));
    }
    options_.print_line(
        fmt::format("`out` {}: the folder was removed or replaced during this run; all files are written again",
                    printable(folder_.string())));
    move_earlier_run(folder_, options_);
  }
  if (!has_config()) {
    write_text(folder_ / run_files::kConfig, options_.config);
  }
}

void RunFolder::save(Communicator& comm, const LayerRanks& layers, const Progress& next, const WholeLayers& model,
                     const EpochResult* result) {
  if (!writes()) {
    return;
  }
  if (rank_ == 0) {
    ensure_folder();
    checkpoints().begin(next);
  }
  comm.barrier();
  comm.controls().leave_record_in(folder_);  // the folder may have been replaced
  const std::set<int> writers = ranks_with_state(layers);
  if (writers.contains(rank_)) {
    checkpoints().write_shard(next, rank_, state_of_rank(layers, rank_, model));
  }
  comm.barrier();
  if (result != nullptr) {
    metrics_ += epoch_json(*result) + "\n";
  }
  if (rank_ == 0) {
    write_text(folder_ / run_files::kMetrics, metrics_);
  }
  if (!layers.empty()) {
    save_gathered_weights(comm, layers, model.parameters, model.buffers, (folder_ / run_files::kWeights).string());
  } else if (rank_ == 0) {
    save_weights(model);
  }
  if (rank_ != 0) {
    return;
  }
  checkpoints().commit(next, writers);
  throw_if<DataError>(!lock_.holds(folder_),
                      "`out` {}: the folder was removed or replaced while a checkpoint was being written; start a new "
                      "run, or continue from an earlier checkpoint with `resume`",
                      folder_.string());
}

void RunFolder::save_weights(const WholeLayers& model) const {
  save_tensors((folder_ / run_files::kWeights).string(), {weights_in(state_of_rank({}, 0, model)), {}});
}

void RunFolder::save_results(const WholeLayers& model, const EpochResult& result) {
  ensure_folder();
  metrics_ += epoch_json(result) + "\n";
  write_text(folder_ / run_files::kMetrics, metrics_);
  save_weights(model);
}

void RunFolder::require_resumable(const Progress& progress, const StateOutline* expected) const {
  if (!is_writer()) {
    return;
  }
  throw_if<DataError>(
      !has_config(),
      "`out` {}: {} was changed or removed during this run; restore it before you continue with `resume`",
      folder_.string(), run_files::kConfig);
  const StatePart no_tensor{.keep = [](const std::string&) { return false; }};
  const Checkpoints::Found found = checkpoints().newest(expected, no_tensor);
  throw_if<DataError>(std::pair(found.progress.epoch, found.progress.step) != std::pair(progress.epoch, progress.step),
                      "`out` {}: the checkpoint that was just written cannot be read back ({}); `resume` would "
                      "continue in epoch {} after {} steps",
                      folder_.string(), fmt::join(found.skipped, "; "), found.progress.epoch, found.progress.step);
}

void RunFolder::save_trace(const std::string& json) {
  if (is_writer()) {
    ensure_folder();
    write_text(folder_ / run_files::kTrace, json);
  }
}

}  // namespace stagecoach
