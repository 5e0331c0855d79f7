#include "chapters/common/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <numeric>
#include <sstream>

#include "core/atomic_file.h"
#include "core/error.h"
#include "nn/safetensors.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.json";
constexpr const char* kMetrics = "metrics.jsonl";
constexpr const char* kTrace = "trace.json";
constexpr const char* kWeights = "weights.safetensors";
constexpr const char* kCheckpoints = "checkpoints";
constexpr const char* kFiles[] = {kConfig,          kMetrics,       kTrace,         kWeights,
                                  kCheckpoints,     "schedule.csv", "schedule.svg", "schedule_trace.json",
                                  "prediction.json"};

/// The lines of metrics.jsonl about epochs before `epoch`.
std::string metrics_before(const fs::path& path, std::int64_t epoch) {
  std::ifstream file(path);
  std::string kept;
  for (std::string line; std::getline(file, line);) {
    const std::int64_t about = epoch_of_json(line);
    if (about > 0 && about < epoch) {
      kept += line + "\n";
    }
  }
  return kept;
}

bool is_of_a_run(const std::string& name) {
  return std::find(std::begin(kFiles), std::end(kFiles), name) != std::end(kFiles) || name.rfind("flight_", 0) == 0;
}

/// Removes what a program left that was killed while it wrote: nobody else writes in a folder that is locked.
void remove_unfinished(const fs::path& folder) {
  std::vector<fs::path> unfinished;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (is_temporary(entry.path())) {
      unfinished.push_back(entry.path());
    }
  }
  for (const fs::path& file : unfinished) {
    std::error_code is_no_matter;
    fs::remove(file, is_no_matter);
  }
}

/// Moves what an earlier run left in `folder` into a folder of its own below.
void move_earlier_run(const fs::path& folder) try {
  std::vector<fs::path> left;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (is_of_a_run(entry.path().filename().string())) {
      left.push_back(entry.path());
    }
  }
  if (left.empty()) {
    return;
  }
  fs::path earlier;
  for (int n = 1; earlier.empty() || fs::exists(earlier); ++n) {
    earlier = folder / fmt::format("earlier-{}", n);
  }
  fs::create_directory(earlier);
  for (const fs::path& file : left) {
    fs::rename(file, earlier / file.filename());
  }
  fmt::print("The earlier run in {} is now in {}\n", folder.string(), earlier.string());
} catch (const fs::filesystem_error& error) {
  throw DataError(
      fmt::format("--out {}: an earlier run in it cannot be moved aside: {}", folder.string(), error.code().message()));
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
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  if (file.peek() != std::ifstream::traits_type::eof()) {
    bytes << file.rdbuf();
  }
  if (!file.is_open() || file.bad()) {
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
    throw DataError(fmt::format("--resume {}: there is no such folder", folder.string()));
  }
  const std::string text =
      read_text(folder / kConfig, fmt::format("is {} the --out folder of a run?", folder.string()));
  return settings_from_json(text, (folder / kConfig).string(), chapter);
}

fs::path make_folder(const std::string& out) {
  try {
    fs::create_directories(out);
  } catch (const fs::filesystem_error& error) {
    throw DataError(fmt::format("--out {}: {}", out, error.code().message()));
  }
  return out;
}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);  // and with it goes the lock
  }
}

void FolderLock::take(const fs::path& folder) {
  descriptor_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor_ >= 0 && ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw UsageError(
        fmt::format("--out {}: another run is writing there; wait for it or choose another folder", folder.string()));
  }
}

RunFolder::RunFolder(const Settings& settings, int rank) : settings_(settings), rank_(rank), resumed_(settings.resume) {
  if (!settings.out.empty()) {
    folder_ = make_folder(settings.out);
  }
}

Checkpoints RunFolder::resumed() const { return {resumed_ / kCheckpoints, training_json(settings_)}; }

void RunFolder::begin(const Progress& progress) {
  if (!writes() || rank_ != 0) {
    return;
  }
  lock_.take(folder_);
  remove_unfinished(folder_);
  if (!resumed_.empty()) {
    metrics_ = metrics_before(resumed_ / kMetrics, progress.epoch);
  }
  if (resumed_.empty() || !fs::equivalent(folder_, resumed_)) {
    move_earlier_run(folder_);
  }
  write_text(folder_ / kConfig, to_json(settings_));
  write_text(folder_ / kMetrics, metrics_);
}

void RunFolder::save(Communicator& comm, const LayerRanks& layers, const Progress& next, const Module& model,
                     const Optimizer& optimizer, const std::optional<NamedTensors>& memory, const EpochResult* result) {
  if (!writes()) {
    return;
  }
  const Checkpoints checkpoints(folder_ / kCheckpoints, training_json(settings_));
  const std::vector<int> model_ranks = holders(layers);
  const std::vector<int> writers = memory ? all_ranks(comm) : model_ranks;
  const NamedTensors weights = gather_weights(comm, layers, model);
  if (rank_ == 0) {
    checkpoints.begin(next);
  }
  comm.barrier();
  if (contains(writers, rank_)) {
    TrainingState part =
        contains(model_ranks, rank_) ? state_of_rank(layers, rank_, model, optimizer) : TrainingState{};
    part.memory = memory.value_or(NamedTensors{});
    checkpoints.write_shard(next, rank_, part);
  }
  comm.barrier();
  if (rank_ != 0) {
    return;
  }
  if (result != nullptr) {
    metrics_ += epoch_json(*result) + "\n";
    write_text(folder_ / kMetrics, metrics_);
  }
  save_tensors((folder_ / kWeights).string(), {weights, {}});
  checkpoints.commit(next, writers);
}

void RunFolder::save_trace(const std::string& json) {
  if (writes() && rank_ == 0) {
    write_text(folder_ / kTrace, json);
  }
}

}  // namespace stagecoach
