#include "chapters/compare/run_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/text_file.h"
#include "core/base/throw_if.h"
#include "parallel/training/run_files.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWhatARunIs =
    "give the --out folder of a run or of a plan (--explain), its metrics.jsonl, or a text log with lines such as "
    "'Epoch: 3, Loss: 1.97, acc: "
    "0.49, time cost: 1.83s'";

std::string read_run_text(const fs::path& path) {
  const std::string text = read_text(path, "check that it is a file that you may read");
  throw_if<DataError>(text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"),
                      "{}: expected UTF-8, got UTF-16, which PowerShell writes; convert it, as with iconv -f UTF-16",
                      path.string());
  constexpr const char* kByteOrderMark = "\xEF\xBB\xBF";  // some editors write it at the beginning
  return text.rfind(kByteOrderMark, 0) == 0 ? text.substr(3) : text;
}

/// Reads the metrics in `file` and the settings beside it, if they exist: older runs have none.
void read_metrics_file(const fs::path& file, RunRecord& run) {
  read_metrics(read_run_text(file), file.string(), run);
  run.weights = file.parent_path() / run_files::kWeights;
  const fs::path config = file.parent_path() / run_files::kConfig;
  if (fs::exists(config)) {
    run.settings = read_config(read_run_text(config), config.string());
  }
}

}  // namespace

std::optional<std::string> RunRecord::setting(const std::string& name) const {
  const auto found = settings.find(name);
  return found == settings.end() ? std::nullopt : std::optional(found->second);
}

void add_epoch(RunRecord& run, EpochRecord epoch, const std::string& where) {
  const std::int64_t last = run.epochs.empty() ? epoch.epoch : run.epochs.back().epoch;
  throw_if<DataError>(
      last > epoch.epoch && std::none_of(run.epochs.begin(), run.epochs.end(),
                                         [&](const EpochRecord& old) { return old.epoch == epoch.epoch; }),
      "{}: expected epochs in rising order, got epoch {} after epoch {}; put the lines in order", where, epoch.epoch,
      last);
  while (!run.epochs.empty() && run.epochs.back().epoch >= epoch.epoch) {
    run.epochs.pop_back();
  }
  run.epochs.push_back(std::move(epoch));
}

void convert_percentages(const std::vector<double*>& accuracies, const std::string& where, RunRecord& run) {
  constexpr double kMaxShare = 1 + 1e-6;  // 1 as a float, rounded
  double share = 0;                       // one of those that were found, if any
  double percentage = 0;
  for (const double* accuracy : accuracies) {
    throw_if<DataError>(*accuracy < 0 || *accuracy > 100,
                        "{}: an accuracy is out of range: expected a share from 0 to 1, or a percentage up to 100, got "
                        "{}; correct it",
                        where, *accuracy);
    if (*accuracy > kMaxShare) {
      percentage = *accuracy;
    } else if (*accuracy > 0) {
      share = *accuracy;
    }
  }
  throw_if<DataError>(
      share > 0 && percentage > 0,
      "{}: the accuracies have different units: expected all from 0 to 1, or all in percent, got {} and "
      "{}; write percentages with their sign, as in 26%",
      where, share, percentage);
  if (percentage > 0) {
    std::for_each(accuracies.begin(), accuracies.end(), [](double* accuracy) { *accuracy /= 100; });
    run.notes.push_back("its accuracies are above 1, so they were read as percentages");
  }
}

RunRecord read_run(const std::string& path) {
  RunRecord run;
  run.path = path;
  const fs::path given(path);
  std::error_code unreadable;  // an unreadable path counts as missing
  if (fs::is_directory(given, unreadable)) {
    const fs::path prediction = given / run_files::kPrediction;
    if (fs::exists(given / run_files::kMetrics, unreadable)) {
      read_metrics_file(given / run_files::kMetrics, run);
    } else if (fs::exists(prediction, unreadable)) {
      read_plan(read_run_text(prediction), prediction.string(), run);
    } else {
      throw DataError(fmt::format("{}: the folder has no metrics.jsonl; {}", path, kWhatARunIs));
    }
  } else if (!fs::exists(given, unreadable)) {
    throw DataError(fmt::format("{}: no such file or folder; {}", path, kWhatARunIs));
  } else if (given.extension() == ".jsonl") {
    read_metrics_file(given, run);
  } else {
    read_text_log(read_run_text(given), path, run);
  }
  throw_if<DataError>(run.epochs.empty(), "{}: expected at least one finished epoch, got none; {}", path, kWhatARunIs);
  return run;
}

}  // namespace stagecoach
