#include "chapters/common/run_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <numeric>
#include <sstream>
#include <utility>

#include "chapters/common/console.h"
#include "chapters/common/earlier_run.h"
#include "chapters/common/run_files.h"
#include "core/atomic_file.h"
#include "core/error.h"
#include "core/memory_limits.h"
#include "core/printable.h"
#include "nn/weights.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

/// Returns the lines of metrics.jsonl about epochs before `epoch`.
std::string metrics_before(const fs::path& path, std::int64_t epoch) {
  if (!fs::exists(path)) {
    return "";
  }
  std::istringstream lines(read_text(path, "move it away to continue without the metrics of earlier epochs"));
  std::string kept;
  for (std::string line; std::getline(lines, line);) {
    const std::int64_t about = epoch_of_json(line);
    if (about > 0 && about < epoch) {
      kept += line + "\n";
    }
  }
  return kept;
}

std::vector<int> all_ranks(const Communicator& comm) {
  std::vector<int> ranks(static_cast<std::size_t>(comm.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

bool contains(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

}  // namespace

std::string read_text(const fs::path& path, const std::string& advice) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_regular_file(status)) {  // a FIFO may never have data, and a device may never end
    throw DataError(fmt::format("{}: expected a regular file, got another kind of file; {}", path.string(), advice));
  }
  std::ifstream file(path, std::ios::binary);
  if (const auto size = fs::file_size(path, error); !error) {
    require_memory_for(path.string(), size);
  }
  std::ostringstream bytes;
  if (file.peek() != std::ifstream::traits_type::eof()) {
    bytes << file.rdbuf();
  }
  if (!file.is_open() || file.bad() || bytes.bad()) {  // bad() is also true after memory has run out
    throw DataError(fmt::format("{}: cannot be read; {}", path.string(), advice));
  }
  return bytes.str();
}

void write_text(const fs::path& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

Settings read_settings(const fs::path& folder, const Chapter& chapter) {
  if (!fs::is_directory(folder)) {
    throw DataError(fmt::format("--resume {}: the folder does not exist; give the --out folder of an earlier run",
                                folder.string()));
  }
  const std::string text = read_text(folder / run_files::kConfig,
                                     fmt::format("check that {} is the --out folder of a run", folder.string()));
  return settings_from_json(text, (folder / run_files::kConfig).string(), chapter);
}

fs::path make_folder(const std::string& out) {
  try {
    fs::create_directories(out);
  } catch (const fs::filesystem_error& error) {
    throw DataError(fmt::format("--out {}: cannot create the folder: {}; check the path and its permissions", out,
                                error.code().message()));
  }
  return out;
}

RunFolder::RunFolder(const Settings& settings, int rank)
    : settings_(settings), rank_(rank), resumed_(settings.run.resume) {
  if (!settings.run.out.empty()) {
    folder_ = make_folder(settings.run.out);
  }
}

Checkpoints RunFolder::resumed() const { return {resumed_ / run_files::kCheckpoints, training_json(settings_)}; }

Checkpoints RunFolder::checkpoints() const { return {folder_ / run_files::kCheckpoints, training_json(settings_)}; }

void RunFolder::lock() {
  if (is_writer()) {
    lock_.take(folder_);
  }
}

void RunFolder::begin(const Progress& progress) {
  if (!is_writer()) {
    return;
  }
  remove_abandoned_files(folder_);
  checkpoints().remove_abandoned();
  if (!resumed_.empty()) {
    metrics_ = metrics_before(resumed_ / run_files::kMetrics, progress.epoch);
  }
  if (resumed_.empty() || !fs::equivalent(folder_, resumed_)) {
    move_earlier_run(folder_);
  }
  write_text(folder_ / run_files::kConfig, to_json(settings_));
  write_text(folder_ / run_files::kMetrics, metrics_);
}

bool RunFolder::has_settings() const try {
  return read_text(folder_ / run_files::kConfig, "this run wrote it") == to_json(settings_);
} catch (const Error&) {
  return false;
}

void RunFolder::hold_folder() {
  if (!lock_.holds(folder_)) {
    make_folder(settings_.run.out);
    try {
      lock_.take(folder_);
    } catch (const UsageError&) {
      throw DataError(fmt::format(
          "--out {}: the folder was removed or replaced during this run, and another run is writing there now; "
          "continue from the saved checkpoint, wherever it was moved to, with --resume and another --out",
          folder_.string()));
    }
    print_line(fmt::format("--out {}: the folder was removed or replaced during this run; all files are written again",
                           printable(folder_.string())));
    move_earlier_run(folder_);
  }
  if (!has_settings()) {
    write_text(folder_ / run_files::kConfig, to_json(settings_));
  }
}

void RunFolder::save(Communicator& comm, const LayerRanks& layers, const Progress& next, const Module& model,
                     const Optimizer& optimizer, const std::optional<NamedTensors>& memory, const EpochResult* result) {
  if (!writes()) {
    return;
  }
  const std::vector<int> model_ranks = ranks_with_state(layers);
  const std::vector<int> writers = memory ? all_ranks(comm) : model_ranks;
  if (rank_ == 0) {
    hold_folder();
    checkpoints().begin(next);
  }
  comm.barrier();
  comm.leave_record_in(folder_);  // the folder may have been replaced
  if (contains(writers, rank_)) {
    TrainingState part =
        contains(model_ranks, rank_) ? state_of_rank(layers, rank_, model, optimizer) : TrainingState{};
    part.memory = memory.value_or(NamedTensors{});
    checkpoints().write_shard(next, rank_, part);
  }
  comm.barrier();
  if (result != nullptr) {
    metrics_ += epoch_json(*result) + "\n";
  }
  if (rank_ == 0) {
    write_text(folder_ / run_files::kMetrics, metrics_);
  }
  if (!layers.empty()) {
    save_gathered_weights(comm, layers, model, (folder_ / run_files::kWeights).string());
  } else if (rank_ == 0) {
    save_weights((folder_ / run_files::kWeights).string(), model);
  }
  if (rank_ != 0) {
    return;
  }
  checkpoints().commit(next, writers);
  if (!lock_.holds(folder_)) {
    throw DataError(
        fmt::format("--out {}: the folder was removed or replaced while a checkpoint was being written; start a new "
                    "run, or continue from an earlier checkpoint with --resume",
                    folder_.string()));
  }
}

void RunFolder::require_resumable(const Progress& progress, const Checkpoints::Misfit& misfit) const {
  if (!is_writer()) {
    return;
  }
  if (!has_settings()) {
    throw DataError(
        fmt::format("--out {}: {} was changed or removed during this run; restore it before you continue with --resume",
                    folder_.string(), run_files::kConfig));
  }
  const Checkpoints::Found found = checkpoints().newest(misfit, no_part());
  if (std::pair(found.progress.epoch, found.progress.step) != std::pair(progress.epoch, progress.step)) {
    throw DataError(
        fmt::format("--out {}: the checkpoint that was just written cannot be read back ({}); --resume would continue "
                    "in epoch {} after {} steps",
                    folder_.string(), fmt::join(found.skipped, "; "), found.progress.epoch, found.progress.step));
  }
}

void RunFolder::save_trace(const std::string& json) {
  if (is_writer()) {
    hold_folder();
    write_text(folder_ / run_files::kTrace, json);
  }
}

}  // namespace stagecoach
