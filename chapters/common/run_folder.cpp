#include "chapters/common/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
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
constexpr const char* kCheckpoint = "checkpoint.safetensors";
constexpr const char* kFiles[] = {kConfig,          kMetrics,       kTrace,         kWeights,
                                  kCheckpoint,      "schedule.csv", "schedule.svg", "schedule_trace.json",
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

/// Moves what an earlier run left in `folder` into a folder of its own below.
void move_earlier_run(const fs::path& folder) try {
  const auto is_there = [&](const char* name) { return fs::exists(folder / name); };
  if (std::none_of(std::begin(kFiles), std::end(kFiles), is_there)) {
    return;
  }
  fs::path earlier;
  for (int n = 1; earlier.empty() || fs::exists(earlier); ++n) {
    earlier = folder / fmt::format("earlier-{}", n);
  }
  fs::create_directory(earlier);
  for (const char* name : kFiles) {
    if (is_there(name)) {
      fs::rename(folder / name, earlier / name);
    }
  }
  fmt::print("The earlier run in {} is now in {}\n", folder.string(), earlier.string());
} catch (const fs::filesystem_error& error) {
  throw DataError(
      fmt::format("--out {}: an earlier run in it cannot be moved aside: {}", folder.string(), error.code().message()));
}

/// The numbers of a Progress as text, exactly: doubles in hexadecimal.
std::map<std::string, std::string> to_metadata(const Progress& p) {
  return {{"epoch", std::to_string(p.epoch)},
          {"step", std::to_string(p.step)},
          {"peak_bytes", fmt::format("{}", fmt::join(p.peak_bytes, ","))},
          {"correct", std::to_string(p.correct)},
          {"seen", std::to_string(p.seen)},
          {"loss_sum", fmt::format("{:a}", p.loss_sum)},
          {"seconds", fmt::format("{:a}", p.seconds)},
          {"waited", fmt::format("{:a}", p.waited)}};
}

/// "12,7": what std::stoll throws stands for damage.
std::vector<std::int64_t> numbers_from(const std::string& list) {
  std::vector<std::int64_t> numbers;
  std::istringstream text(list);
  for (std::string number; std::getline(text, number, ',');) {
    numbers.push_back(std::stoll(number));
  }
  return numbers;
}

Progress from_metadata(const std::map<std::string, std::string>& metadata, const fs::path& path) {
  const auto text = [&](const char* name) {
    const auto found = metadata.find(name);
    if (found == metadata.end()) {
      throw DataError(fmt::format("{}: is no checkpoint of a run ('{}' is missing)", path.string(), name));
    }
    return found->second;
  };
  Progress p;
  try {
    p.epoch = std::stoll(text("epoch"));
    p.step = std::stoll(text("step"));
    p.peak_bytes = numbers_from(text("peak_bytes"));
    p.correct = std::stoll(text("correct"));
    p.seen = std::stoll(text("seen"));
    p.loss_sum = std::stod(text("loss_sum"));
    p.seconds = std::stod(text("seconds"));
    p.waited = std::stod(text("waited"));
  } catch (const std::logic_error&) {
    throw DataError(fmt::format("{}: its record of the progress is damaged", path.string()));
  }
  return p;
}

/// The tensors of `file` whose names begin with `prefix`, without it.
NamedTensors with_prefix(const TensorFile& file, const std::string& prefix) {
  NamedTensors found;
  for (const auto& [name, tensor] : file.tensors) {
    if (name.rfind(prefix, 0) == 0) {
      found.emplace_back(name.substr(prefix.size()), tensor);
    }
  }
  return found;
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

Settings read_settings(const fs::path& folder) {
  if (!fs::is_directory(folder)) {
    throw DataError(fmt::format("--resume {}: there is no such folder", folder.string()));
  }
  const std::string text =
      read_text(folder / kConfig, fmt::format("is {} the --out folder of a run?", folder.string()));
  return settings_from_json(text, (folder / kConfig).string());
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

RunFolder::RunFolder(const Settings& settings) : settings_(settings), resumed_(settings.resume) {
  if (!settings.out.empty()) {
    folder_ = make_folder(settings.out);
  }
}

std::string RunFolder::checkpoint_path() const { return (resumed_ / kCheckpoint).string(); }

std::pair<Progress, TrainingState> RunFolder::resume() const {
  const fs::path path = checkpoint_path();
  if (!fs::exists(path)) {
    throw DataError(fmt::format("--resume {}: no checkpoint there yet; start the run anew", resumed_.string()));
  }
  const TensorFile file = load_tensors(path.string());
  const Progress progress = from_metadata(file.metadata, path);
  const auto recorded = file.metadata.find("training");
  if (recorded == file.metadata.end() || recorded->second != training_json(settings_)) {
    throw DataError(fmt::format("{}: was saved by a training with other settings than {} says; it was changed since",
                                path.string(), (resumed_ / kConfig).string()));
  }
  return {progress, {with_prefix(file, "model."), with_prefix(file, "optimizer.")}};
}

void RunFolder::begin(const Progress& progress) {
  if (!writes()) {
    return;
  }
  lock_.take(folder_);
  if (!resumed_.empty()) {
    metrics_ = metrics_before(resumed_ / kMetrics, progress.epoch);
  }
  if (resumed_.empty() || !fs::equivalent(folder_, resumed_)) {
    move_earlier_run(folder_);
  }
  write_text(folder_ / kConfig, to_json(settings_));
  write_text(folder_ / kMetrics, metrics_);
}

void RunFolder::save_epoch(const EpochResult& result, const Progress& next, const TrainingState& state) {
  if (writes()) {
    metrics_ += epoch_json(result) + "\n";
    write_text(folder_ / kMetrics, metrics_);
    save_state(next, state);
  }
}

void RunFolder::save_interrupted(const Progress& progress, const TrainingState& state) {
  if (writes()) {
    save_state(progress, state);
  }
}

void RunFolder::save_state(const Progress& progress, const TrainingState& state) {
  TensorFile file{{}, to_metadata(progress)};
  file.metadata["training"] = training_json(settings_);
  for (const auto& [name, tensor] : state.weights) {
    file.tensors.emplace_back("model." + name, tensor);
  }
  for (const auto& [name, tensor] : state.optimizer) {
    file.tensors.emplace_back("optimizer." + name, tensor);
  }
  save_tensors((folder_ / kCheckpoint).string(), file);
  save_tensors((folder_ / kWeights).string(), {state.weights, {}});
}

void RunFolder::save_trace(const std::string& json) {
  if (writes()) {
    write_text(folder_ / kTrace, json);
  }
}

}  // namespace stagecoach
