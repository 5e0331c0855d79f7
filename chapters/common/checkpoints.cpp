#include "chapters/common/checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <sstream>
#include <utility>

#include "core/error.h"
#include "nn/safetensors.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;
using Metadata = std::map<std::string, std::string>;

constexpr const char* kManifest = "manifest.safetensors";  // without tensors; its checksum covers all that it says
constexpr const char* kNothingYet = "no checkpoint there yet; start the run anew";

std::string shard_name(int rank) { return fmt::format("shard_{}.safetensors", rank); }

/// Epoch and step of the name of a checkpoint's folder; negative numbers for other names.
std::pair<std::int64_t, std::int64_t> number_of(const fs::path& place) {
  long long epoch = -1;
  long long step = -1;
  const std::string name = place.filename().string();
  if (std::sscanf(name.c_str(), "epoch-%lld-step-%lld", &epoch, &step) != 2) {
    return {-1, -1};
  }
  return {epoch, step};
}

/// The numbers of a Progress as text, exactly: doubles in hexadecimal.
Metadata to_metadata(const Progress& p) {
  return {{"epoch", std::to_string(p.epoch)},
          {"step", std::to_string(p.step)},
          {"peak_bytes", fmt::format("{}", fmt::join(p.peak_bytes, ","))},
          {"correct", std::to_string(p.correct)},
          {"seen", std::to_string(p.seen)},
          {"loss_sum", fmt::format("{:a}", p.loss_sum)},
          {"seconds", fmt::format("{:a}", p.seconds)},
          {"rank_seconds", fmt::format("{:a}", p.rank_seconds)},
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

std::string text_of(const Metadata& metadata, const char* name, const fs::path& path) {
  const auto found = metadata.find(name);
  if (found == metadata.end()) {
    throw DataError(fmt::format("{}: is no part of a checkpoint ('{}' is missing)", path.string(), name));
  }
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
    throw DataError(fmt::format("{}: its record of the progress is damaged", path.string()));
  }
}

void append(NamedTensors& all, const std::string& prefix, const NamedTensors& some) {
  for (const auto& [name, tensor] : some) {
    all.emplace_back(prefix + name, tensor);
  }
}

/// A checkpoint whose writing was cut off: nothing that was saved is lost with it.
class NeverFinished : public DataError {
 public:
  using DataError::DataError;
};

/// A checkpoint that is whole, and of no use.
class OtherTraining : public DataError {
 public:
  using DataError::DataError;
};

/// Calls `body`, and makes a DataError of what the file system throws.
template <class Body>
auto with_reasons(const fs::path& place, const Body& body) try {
  return body();
} catch (const fs::filesystem_error& error) {
  throw DataError(fmt::format("{}: {}", place.string(), error.code().message()));
}

}  // namespace

fs::path Checkpoints::place_of(std::int64_t epoch, std::int64_t step) const {
  return folder_ / fmt::format("epoch-{}-step-{}", epoch, step);
}

void Checkpoints::begin(const Progress& progress) const {
  const fs::path place = place_of(progress);
  with_reasons(place, [&] {
    fs::create_directories(place);
    fs::remove(place / kManifest);
  });
}

void Checkpoints::write_shard(const Progress& progress, int rank, const TrainingState& part) const {
  TensorFile file{{}, to_metadata(progress)};
  append(file.tensors, "model.", part.weights);
  append(file.tensors, "optimizer.", part.optimizer);
  append(file.tensors, "memory.", part.memory);
  save_tensors((place_of(progress) / shard_name(rank)).string(), file);
}

void Checkpoints::commit(const Progress& progress, const std::vector<int>& ranks) const {
  const fs::path place = place_of(progress);
  TensorFile manifest{{}, to_metadata(progress)};
  manifest.metadata["training"] = training_;
  manifest.metadata["ranks"] = fmt::format("{}", fmt::join(ranks, ","));
  save_tensors((place / kManifest).string(), manifest);

  bool has_older = false;  // one is kept, should this one prove damaged
  for (const fs::path& other : places()) {
    if (other == place) {
      continue;
    }
    const bool is_kept = !has_older && number_of(other) < number_of(place) && fs::exists(other / kManifest);
    has_older = has_older || is_kept;
    if (!is_kept) {
      with_reasons(other, [&] { fs::remove_all(other); });
    }
  }
}

std::vector<fs::path> Checkpoints::places() const {
  std::vector<fs::path> found;
  if (fs::is_directory(folder_)) {
    with_reasons(folder_, [&] {
      std::copy_if(fs::directory_iterator(folder_), {}, std::back_inserter(found),
                   [](const fs::path& place) { return number_of(place).first >= 0; });
    });
  }
  std::sort(found.begin(), found.end(),
            [](const fs::path& a, const fs::path& b) { return number_of(a) > number_of(b); });
  return found;
}

Checkpoints::Found Checkpoints::read(const fs::path& place) const {
  const fs::path path = place / kManifest;
  if (!fs::exists(path)) {
    throw NeverFinished(fmt::format("{}: was never finished", place.string()));
  }
  const TensorFile manifest = load_tensors(path.string());
  Found found{from_metadata(manifest.metadata, path), {}, {}};
  for (const std::int64_t rank : numbers_from(text_of(manifest.metadata, "ranks", path))) {
    const fs::path shard = place / shard_name(static_cast<int>(rank));
    const TensorFile file = load_tensors(shard.string());
    if (to_metadata(from_metadata(file.metadata, shard)) != to_metadata(found.progress)) {
      throw DataError(fmt::format("{}: belongs to another checkpoint", shard.string()));
    }
    append(found.state.weights, "", below("model.", file.tensors));
    append(found.state.optimizer, "", below("optimizer.", file.tensors));
    append(found.state.memory, "", below("memory.", file.tensors));
  }
  if (text_of(manifest.metadata, "training", path) != training_) {
    throw OtherTraining(
        fmt::format("{}: was saved by a training with other settings than config.json says; it was "
                    "changed since",
                    path.string()));
  }
  return found;
}

Checkpoints::Found Checkpoints::newest() const {
  std::vector<std::string> skipped;
  bool was_one = false;  // which is damaged now
  for (const fs::path& place : places()) {
    try {
      Found found = read(place);
      found.skipped = skipped;
      return found;
    } catch (const OtherTraining&) {
      throw;
    } catch (const NeverFinished& error) {
      skipped.push_back(error.what());
    } catch (const DataError& error) {
      skipped.push_back(error.what());
      was_one = true;
    }
  }
  if (was_one) {
    throw DataError(fmt::format("{}: none is whole: {}", folder_.string(), fmt::join(skipped, "; ")));
  }
  const std::string cut_off = skipped.empty() ? "" : fmt::format(" ({})", fmt::join(skipped, "; "));
  throw DataError(fmt::format("{}: {}{}", folder_.string(), kNothingYet, cut_off));
}

Checkpoints::Found Checkpoints::at(std::int64_t epoch, std::int64_t step) const { return read(place_of(epoch, step)); }

}  // namespace stagecoach
