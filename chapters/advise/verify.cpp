#include "chapters/advise/verify.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "chapters/advise/command.h"
#include "chapters/common/open.h"
#include "core/base/on_exit.h"
#include "core/base/parse_json.h"
#include "core/base/text_file.h"
#include "core/base/throw_if.h"
#include "core/base/units.h"
#include "parallel/training/run_files.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// Runs a shell's command line, silently.
void run_command(const std::string& command) {
  throw_if<Error>(std::system((command + " > /dev/null").c_str()) != 0, "the command failed: {}", command);
}

/// The first epoch of a run.
struct Epoch1 {
  double seconds = 0;
  double peak_bytes = 0;  ///< of the rank that needed most
};

/// Returns the fewest batches of an epoch: two, or for gpt as many as a text with one sequence in its last tenth has,
/// which is the test part.
std::int64_t fewest_batches(const TrainingSettings& training) {
  constexpr std::int64_t kSequences = 20;
  return reads_text(training) ? std::max<std::int64_t>(2, 1 + kSequences / training.batch_size) : 2;
}

/// Makes data whose epoch has `samples` samples, unless it is there, and returns it as the flag --data takes it.
std::string data_of(const TrainingSettings& training, const std::string& programs, const fs::path& folder,
                    std::int64_t samples) {
  const std::string path = (folder / fmt::format("data{}", samples)).string();
  if (!fs::exists(path)) {
    if (reads_text(training)) {
      const std::int64_t bytes = samples * training.context + 1;  // to train on
      write_text(path, std::string(static_cast<std::size_t>(bytes + (bytes - 1) / 9), ' '));
    } else {
      run_command(fmt::format("'{}/make_generated_data' '{}' --train {} --test 10", programs, path, samples));
    }
  }
  return fmt::format("'{}{}'", reads_text(training) ? "text:" : "", path);
}

/// Trains one epoch of `batches` batches.
Epoch1 train(const AdviseOptions& options, const Evaluated& plan, const std::string& programs, const fs::path& folder,
             std::int64_t batches) {
  const TrainingSettings& training = options.settings.training;
  const std::string data = data_of(training, programs, folder, batches * training.batch_size);
  const fs::path out = folder / "run";
  fs::remove_all(out);
  run_command(fmt::format("'{}'/{} --epochs 1 --out '{}'", programs, command_of(options, plan, data), out.string()));
  const std::string text = read_text(out / run_files::kMetrics, "the run should have written it");
  const Json json = parse_json<Json>(text.substr(0, text.find('\n')), "metrics.jsonl", "the run wrote it");
  const auto peaks = json.at("peak_bytes").get<std::vector<double>>();
  return {json.at("seconds"), *std::max_element(peaks.begin(), peaks.end())};
}

}  // namespace

std::string verified_table(const AdviseOptions& options, const Advice& advice, const std::string& programs) {
  std::string folder = (fs::temp_directory_path() / "advise-XXXXXX").string();
  throw_if<Error>(mkdtemp(folder.data()) == nullptr, "{}: cannot be made; check the folder for temporary files",
                  folder);
  const OnExit remove([&] { fs::remove_all(folder); });
  std::string table = fmt::format("{:>3} {:>14} {:>14} {:>8} {:>14} {:>14}  {}\n", "", "predicted", "run", "differs",
                                  "predicted MiB", "run MiB", "plan");
  const int count = std::min(options.verify, static_cast<int>(advice.best.size()));
  for (int i = 0; i < count; ++i) {
    const Evaluated& plan = advice.best[static_cast<std::size_t>(i)];
    const bool is_late = plan.staleness > 0;
    const std::int64_t full = is_late ? 2 * plan.candidate.mesh.pipeline : 0;  // batches that fill a pipeline
    const std::int64_t batches = std::max(fewest_batches(options.settings.training), full);
    const std::int64_t more = is_late ? 2 : 1;  // every other step may take longer
    const Epoch1 longer = train(options, plan, programs, folder, batches + more);
    const double seconds =
        (longer.seconds - train(options, plan, programs, folder, batches).seconds) / static_cast<double>(more);
    table += fmt::format("{:>3} {:>11.4f} ms {:>11.4f} ms {:>7.3f}% {:>14.3f} {:>14.3f}  {}\n", i + 1,
                         1e3 * plan.seconds, 1e3 * seconds, 100 * (plan.seconds / seconds - 1),
                         plan.worst().total() / kMiB, longer.peak_bytes / kMiB, to_string(plan.candidate));
  }
  return table;
}

}  // namespace stagecoach
