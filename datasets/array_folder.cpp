#include "datasets/array_folder.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "core/base/atomic_file.h"
#include "core/base/throw_if.h"
#include "datasets/files.h"
#include "datasets/npy.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNames = "classes.txt";
constexpr std::int64_t kMaxClasses = 100'000;
constexpr std::int64_t kLabelsAtOnce = 65536;

fs::path array_path(const fs::path& folder, const char* split, const char* part) {
  return folder / fmt::format("{}_{}.npy", split, part);
}

/// The rows of two files.
class ArraySamples final : public SampleSource {
 public:
  ArraySamples(const fs::path& folder, const char* split)
      : inputs_(array_path(folder, split, "inputs")), targets_(array_path(folder, split, "targets")) {
    throw_if<DataError>(inputs_.size() != targets_.size(),
                        "{} has {} rows, but {} has {}: expected a target for each input; write both again",
                        inputs_.path().string(), inputs_.size(), targets_.path().filename().string(), targets_.size());
  }

  std::int64_t size() const override { return targets_.size(); }
  SampleType input() const override { return inputs_.row(); }
  SampleType target() const override { return targets_.row(); }
  void read(std::int64_t index, Tensor& input, Tensor& target) const override {
    if (input.defined()) {
      inputs_.read(index, input);
    }
    targets_.read(index, target);
  }
  bool has_labels() const { return target() == SampleType{{}, DType::int32}; }

  /// Returns the largest label. Throws DataError for one outside 0 … limit-1.
  std::int32_t largest_label(std::int64_t limit) const {
    std::int32_t largest = 0;
    for (std::int64_t first = 0; first < size(); first += kLabelsAtOnce) {
      Tensor labels = Tensor::empty({std::min(kLabelsAtOnce, size() - first)}, DType::int32);
      targets_.read(first, labels);
      const auto* values = labels.data<std::int32_t>();
      for (std::int64_t i = 0; i < labels.numel(); ++i) {
        throw_if<DataError>(values[i] < 0 || values[i] >= limit,
                            "{}: expected labels from 0 to {}, got {} in row {}; correct it, or {}",
                            targets_.path().string(), limit - 1, values[i], first + i, kNames);
        largest = std::max(largest, values[i]);
      }
    }
    return largest;
  }

 private:
  NpyFile inputs_;
  NpyFile targets_;
};

/// Returns the names in classes.txt, or the numbers of the labels in the training data.
std::vector<std::string> classes_of(const fs::path& folder, const ArraySamples& train) {
  std::error_code error;
  std::vector<std::string> names;
  if (fs::exists(fs::symlink_status(folder / kNames, error))) {
    names = read_lines(folder / kNames);
    throw_if<DataError>(names.empty() || std::set(names.begin(), names.end()).size() < names.size(),
                        "{}: expected different class names, one per line; correct it, or delete it to name the "
                        "classes by their numbers",
                        (folder / kNames).string());
    return names;
  }
  const std::int32_t largest = train.largest_label(kMaxClasses);
  for (std::int32_t label = 0; label <= largest; ++label) {
    names.push_back(std::to_string(label));
  }
  return names;
}

void write_split(const fs::path& folder, const char* split, const Dataset& data) {
  const auto samples = samples_of(data);
  NpyWriter inputs(array_path(folder, split, "inputs"), samples->size(), samples->input());
  NpyWriter targets(array_path(folder, split, "targets"), samples->size(), samples->target());
  Tensor input = Tensor::empty(samples->input().shape, samples->input().dtype);
  Tensor target = Tensor::empty(samples->target().shape, samples->target().dtype);
  for (std::int64_t i = 0; i < samples->size(); ++i) {
    samples->read(i, input, target);
    inputs.write(input);
    targets.write(target);
  }
  inputs.commit();
  targets.commit();
}

}  // namespace

bool is_array_folder(const fs::path& folder) {
  std::error_code error;
  return fs::exists(fs::symlink_status(array_path(folder, "train", "inputs"), error));
}

TrainTest load_array_folder(const fs::path& folder) {
  const auto train = std::make_shared<ArraySamples>(folder, "train");
  const auto test = std::make_shared<ArraySamples>(folder, "test");
  throw_if<DataError>(train->input() != test->input() || train->target() != test->target(),
                      "{}: the arrays of the test have other shapes or types than those of the training: expected the "
                      "same except for the number of rows; write them again",
                      folder.string());
  TrainTest data;
  data.source.files = 4;
  if (train->has_labels()) {
    data.train.classes = data.test.classes = classes_of(folder, *train);
    train->largest_label(std::ssize(data.train.classes));
    test->largest_label(std::ssize(data.train.classes));
  }
  data.train.samples = train;
  data.test.samples = test;
  return data;
}

void write_array_folder(const fs::path& folder, const TrainTest& data) {
  std::error_code error;
  fs::create_directories(folder, error);
  throw_if<DataError>(static_cast<bool>(error), "folder {} cannot be created: {}; check the path and its permissions",
                      folder.string(), error.message());
  if (!data.train.classes.empty()) {
    AtomicFile names(folder / kNames);
    names.write(fmt::format("{}\n", fmt::join(data.train.classes, "\n")));
    names.commit();
  }
  write_split(folder, "train", data.train);
  write_split(folder, "test", data.test);
}

}  // namespace stagecoach
