#include "parallel/training/checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "core/base/atomic_file.h"
#include "core/base/parse.h"
#include "core/base/throw_if.h"
#include "nn/safetensors.h"
#include "parallel/training/same_training.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;
using Metadata = std::map<std::string, std::string>;

constexpr const char* kManifest = "manifest.safetensors";  // without tensors; its checksum covers its text

std::string shard_name(std::int64_t rank) { return fmt::format("shard_{}.safetensors", rank); }

/// Returns epoch and step from the name of a checkpoint's folder; nothing for any other name, such as a user's copy.
std::optional<std::vector<std::int64_t>> number_of(const fs::path& checkpoint) {
  return numbers_in(checkpoint.filename().string(), "epoch-#-step-#");
}

/// Returns whether a file in a checkpoint's folder belongs to the checkpoint.
bool is_part(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  return entry.symlink_status().type() == fs::file_type::regular &&
         (name == kManifest || numbers_in(name, "shard_#.safetensors"));
}

/// Removes a checkpoint from its folder: the manifest first, so that a partial one is never taken for a complete one.
void remove_parts(const fs::path& checkpoint) {
  fs::remove(checkpoint / kManifest);
  remove_abandoned_files(checkpoint);
  std::vector<fs::path> parts;
  std::copy_if(fs::directory_iterator(checkpoint), {}, std::back_inserter(parts), is_part);
  for (const fs::path& part : parts) {
    fs::remove(part);
  }
}

/// Returns "0x1.8p+0" for 1.5. Uses the C library, because the format differs between versions of fmt.
std::string hexadecimal(double number) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%a", number);
  return text.data();
}

/// Returns the numbers of a Progress as exact text: doubles in hexadecimal.
Metadata to_metadata(const Progress& p) {
  return {{"epoch", std::to_string(p.epoch)},
          {"step", std::to_string(p.step)},
          {"peak_bytes", fmt::format("{}", fmt::join(p.peak_bytes, ","))},
          {"correct", std::to_string(p.correct)},
          {"seen", std::to_string(p.seen)},
          {"loss_sum", hexadecimal(p.loss_sum)},
          {"seconds", hexadecimal(p.seconds)},
          {"rank_seconds", hexadecimal(p.rank_seconds)},
          {"waited", hexadecimal(p.waited)}};
}

/// Reads "12,7". Throws std::logic_error if it is damaged, as std::stoll does.
std::vector<std::int64_t> numbers_from(const std::string& list) {
  std::vector<std::int64_t> numbers;
  std::istringstream text(list);
  for (std::string number; std::getline(text, number, ',');) {
    numbers.push_back(std::stoll(number));
  }
  return numbers;
}

std::string text_of(const Metadata& metadata, const char* name, const fs::path& path) {
  const auto found = metadata.find(name);
  throw_if<DataError>(found == metadata.end(), "{}: not part of a checkpoint: '{}' is missing", path.string(), name);
  return found->second;
}

Progress from_metadata(const Metadata& metadata, const fs::path& path) {
  const auto text = [&](const char* name) { return text_of(metadata, name, path); };
  try {
    return {.epoch = std::stoll(text("epoch")),
            .step = std::stoll(text("step")),
            .loss_sum = std::stod(text("loss_sum")),
            .correct = std::stoll(text("correct")),
            .seen = std::stoll(text("seen")),
            .peak_bytes = numbers_from(text("peak_bytes")),
            .seconds = std::stod(text("seconds")),
            .rank_seconds = std::stod(text("rank_seconds")),
            .waited = std::stod(text("waited"))};
  } catch (const std::logic_error&) {
    throw DataError(fmt::format("{}: the progress record is damaged", path.string()));
  }
}

/// Returns the ranks whose shards make up a checkpoint.
std::vector<std::int64_t> ranks_in(const Metadata& metadata, const fs::path& path) try {
  return numbers_from(text_of(metadata, "ranks", path));
} catch (const std::logic_error&) {
  throw DataError(fmt::format("{}: the list of ranks is damaged", path.string()));
}

/// Thrown for a checkpoint whose writing was interrupted. No complete checkpoint is lost with it.
class NeverFinished : public DataError {
 public:
  using DataError::DataError;
};

/// Calls `body`, and converts file system errors to DataError.
template <class Body>
auto with_reasons(const fs::path& path, const Body& body) try {
  return body();
} catch (const fs::filesystem_error& error) {
  throw DataError(fmt::format("{}: {}", path.string(), error.code().message()));
}

bool has_manifest(const fs::path& checkpoint) {
  std::error_code ignored;  // a folder that cannot be read is of no use
  return fs::exists(checkpoint / kManifest, ignored);
}

}  // namespace

fs::path Checkpoints::folder_of(std::int64_t epoch, std::int64_t step) const {
  return folder_ / fmt::format("epoch-{}-step-{}", epoch, step);
}

void Checkpoints::remove_abandoned() const {
  if (fs::is_directory(folder_)) {
    remove_abandoned_files(folder_);
  }
  for (const fs::path& checkpoint : all()) {
    remove_abandoned_files(checkpoint);
  }
}

void Checkpoints::begin(const Progress& progress) const {
  const fs::path checkpoint = folder_of(progress);
  with_reasons(checkpoint, [&] {
    fs::create_directories(checkpoint);
    remove_parts(checkpoint);
  });
}

void Checkpoints::write_shard(const Progress& progress, int rank, const TrainingState& part) const {
  save_tensors((folder_of(progress) / shard_name(rank)).string(), {part, to_metadata(progress)});
}

void Checkpoints::commit(const Progress& progress, const std::set<int>& ranks) const {
  const fs::path checkpoint = folder_of(progress);
  TensorFile manifest{{}, to_metadata(progress)};
  manifest.metadata["training"] = training_;
  if (data_) {
    manifest.metadata["data"] = to_json(*data_);
  }
  if (parts_) {
    manifest.metadata["parts"] = to_text(*parts_);
  }
  manifest.metadata["ranks"] = fmt::format("{}", fmt::join(ranks, ","));
  save_tensors((checkpoint / kManifest).string(), manifest);

  bool has_older = false;  // one older checkpoint is kept in case this one proves to be damaged
  for (const fs::path& other : all()) {
    if (other == checkpoint) {
      continue;
    }
    const bool is_kept = !has_older && number_of(other) < number_of(checkpoint) && has_manifest(other);
    has_older = has_older || is_kept;
    if (!is_kept && !fs::is_symlink(other)) {  // a link belongs to the user
      with_reasons(other, [&] {
        remove_parts(other);
        if (fs::is_empty(other)) {  // otherwise it has files of the user
          fs::remove(other);
        }
      });
    }
  }
}

std::vector<fs::path> Checkpoints::all() const {
  std::vector<fs::path> found;
  if (fs::is_directory(folder_)) {
    with_reasons(folder_, [&] {
      std::copy_if(fs::directory_iterator(folder_), {}, std::back_inserter(found),
                   [](const fs::directory_entry& entry) { return number_of(entry.path()) && entry.is_directory(); });
    });
  }
  std::sort(found.begin(), found.end(),
            [](const fs::path& a, const fs::path& b) { return number_of(a) > number_of(b); });
  return found;
}

Checkpoints::Found Checkpoints::read(const fs::path& checkpoint, const StatePart& part) const {
  const fs::path path = checkpoint / kManifest;
  if (!with_reasons(path, [&] { return fs::exists(path); })) {
    throw NeverFinished(fmt::format("{}: the checkpoint was never completed", checkpoint.string()));
  }
  const TensorFile manifest = load_tensors(path.string());
  Found found{.progress = from_metadata(manifest.metadata, path)};
  if (const auto data = manifest.metadata.find("data"); data != manifest.metadata.end()) {
    found.data = fingerprint_from_json(data->second, path.string());
  }
  if (const auto parts = manifest.metadata.find("parts"); parts != manifest.metadata.end()) {
    found.parts = parts_from_text(parts->second, path.string());
  }
  throw_if<DataError>(std::vector{found.progress.epoch, found.progress.step} != number_of(checkpoint),
                      "{}: contains epoch {}, step {}, which contradicts the name of its folder", path.string(),
                      found.progress.epoch, found.progress.step);
  for (const std::int64_t rank : ranks_in(manifest.metadata, path)) {
    const fs::path shard = checkpoint / shard_name(rank);
    const TensorFile file = load_tensors(shard.string(), part.keep, part.device);
    throw_if<DataError>(to_metadata(from_metadata(file.metadata, shard)) != to_metadata(found.progress),
                        "{}: belongs to another checkpoint", shard.string());
    found.state.insert(found.state.end(), file.tensors.begin(), file.tensors.end());
    found.contents.insert(found.contents.end(), file.contents.begin(), file.contents.end());
  }
  throw_if<DataError>(!trains_alike(text_of(manifest.metadata, "training", path), training_),
                      "{}: was saved with settings other than those in config.json; restore the original config.json",
                      path.string());
  return found;
}

Checkpoints::Found Checkpoints::newest(const StateOutline* expected, const StatePart& part,
                                       const RequireData& require_data) const {
  std::vector<std::string> skipped;
  bool has_damaged = false;
  for (const fs::path& checkpoint : all()) {
    try {
      Found found = read(checkpoint, part);
      if (require_data) {
        require_data(found.data);
      }
      const std::string reason = expected == nullptr ? "" : misfit(*expected, found.contents);
      throw_if<DataError>(!reason.empty(), "{}: does not match the model: it {}", checkpoint.string(), reason);
      found.skipped = skipped;
      return found;
    } catch (const OtherData&) {
      throw;
    } catch (const NeverFinished& error) {
      skipped.push_back(error.what());
    } catch (const DataError& error) {
      skipped.push_back(error.what());
      has_damaged = true;
    }
  }
  throw_if<DataError>(has_damaged, "{}: expected a complete checkpoint, got none ({}); restore one, or start a new run",
                      folder_.string(), fmt::join(skipped, "; "));
  const std::string cut_off = skipped.empty() ? "" : fmt::format(" ({})", fmt::join(skipped, "; "));
  throw DataError(fmt::format("{}: no checkpoint has been written yet; start the run again without `resume`{}",
                              folder_.string(), cut_off));
}

Checkpoints::Found Checkpoints::at(std::int64_t epoch, std::int64_t step, const StatePart& part) const {
  return read(folder_of(epoch, step), part);
}

}  // namespace stagecoach
