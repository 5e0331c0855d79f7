#include "datasets/cifar10.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/atomic_file.h"
#include "core/base/error.h"
#include "core/base/memory_limits.h"
#include "core/base/parse.h"
#include "core/base/throw_if.h"
#include "datasets/files.h"
#include "datasets/sanity_check.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSide = 32;
constexpr std::int64_t kPixels = 3 * kSide * kSide;  // bytes per image
constexpr std::int64_t kRecord = 1 + kPixels;        // bytes of an image and its label
constexpr std::int64_t kClasses = 10;
constexpr std::int64_t kChunk = 64;  // records read at a time: 200 kB, so that no second copy of the set exists
constexpr std::string_view kInnerFolder = "cifar-10-batches-bin";
constexpr std::string_view kTestBatch = "test_batch.bin";
constexpr std::int64_t kOfficialBatches = 5;    // for training, and one for the test
constexpr std::int64_t kOfficialBatch = 10000;  // images of each

/// Returns the 12 of "data_batch_12.bin"; nothing for other names.
std::optional<int> batch_number(const fs::path& path) {
  const std::string name = path.filename().string();
  constexpr std::string_view kPrefix = "data_batch_";
  constexpr std::string_view kSuffix = ".bin";
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) {
    return std::nullopt;
  }
  const auto digits = std::string_view(name).substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
  return digits.find_first_not_of("0123456789") != std::string_view::npos ? std::nullopt : number_from<int>(digits);
}

bool has_batches(const std::vector<fs::path>& entries) {
  return std::any_of(entries.begin(), entries.end(), [](const fs::path& path) {
    return batch_number(path).has_value() || path.filename() == kTestBatch;
  });
}

/// Returns the training batches in the order of their numbers, which must be 1, 2, 3, …
std::vector<fs::path> train_files(const fs::path& folder, const std::vector<fs::path>& entries) {
  std::vector<std::pair<int, fs::path>> numbered;
  for (const fs::path& path : entries) {
    if (const auto number = batch_number(path)) {
      numbered.emplace_back(*number, path);
    }
  }
  throw_if<DataError>(numbered.empty(),
                      "{} lacks data_batch_1.bin to data_batch_5.bin of CIFAR-10's binary version; {}", folder.string(),
                      kHowToGetData);
  std::sort(numbered.begin(), numbered.end());
  std::vector<fs::path> files;
  for (const auto& [number, path] : numbered) {
    const int expected = static_cast<int>(files.size()) + 1;
    throw_if<DataError>(number < 1, "{}: expected batches numbered 1, 2, 3, …, got {}; delete or rename it",
                        path.string(), number);
    throw_if<DataError>(number < expected, "{} and {} are both batch {}: expected one; delete the other",
                        files.empty() ? "" : files.back().string(), path.string(), number);
    throw_if<DataError>(number > expected, "{} lacks data_batch_{}.bin, but has {}; add it, or {}", folder.string(),
                        expected, path.filename().string(), kHowToGetData);
    files.push_back(path);
  }
  return files;
}

/// Returns the number of records in `file`.
std::int64_t count_records(const FileReader& file, const fs::path& path) {
  throw_if<DataError>(file.size() == 0, "{} is empty; delete it, then {}", path.string(), kHowToGetData);
  throw_if<DataError>(
      file.size() % kRecord != 0,
      "{0} is truncated: expected a multiple of {2} bytes, got {1} (record {3} ends at byte {4}); delete it, "
      "then {5}",
      path.string(), file.size(), kRecord, file.size() / kRecord, file.size(), kHowToGetData);
  return file.size() / kRecord;
}

/// Reads `count` records into `images` [count, 3, 32, 32] and `labels` [count].
void read_records(FileReader& file, const fs::path& path, std::int64_t count, std::uint8_t* images,
                  std::int32_t* labels) {
  std::vector<std::uint8_t> chunk(static_cast<std::size_t>(kChunk * kRecord));
  for (std::int64_t start = 0; start < count; start += kChunk) {
    const std::int64_t records = std::min(kChunk, count - start);
    file.read(chunk.data(), static_cast<std::size_t>(records * kRecord));
    for (std::int64_t i = 0; i < records; ++i) {
      const std::uint8_t* record = chunk.data() + i * kRecord;
      if (record[0] >= kClasses) {
        throw DataError(
            fmt::format("{0} is damaged or not CIFAR-10: expected a label from 0 to {4} in record {1} (at byte {2}), "
                        "got {3}; delete it, then {5}",
                        path.string(), start + i, (start + i) * kRecord, record[0], kClasses - 1, kHowToGetData));
      }
      labels[start + i] = record[0];
      std::memcpy(images + (start + i) * kPixels, record + 1, static_cast<std::size_t>(kPixels));
    }
  }
}

/// Throws DataError if a batch has fewer records than another: a download or a copy that was cut off at a record.
void require_equal_counts(const std::vector<fs::path>& paths, const std::vector<std::int64_t>& counts) {
  const auto most = std::max_element(counts.begin(), counts.end());
  const auto least = std::min_element(counts.begin(), counts.end());
  throw_if<DataError>(*least != *most, "{} has {} images, but {} has {}: expected batches of one length; {}",
                      paths[static_cast<std::size_t>(least - counts.begin())].string(), *least,
                      paths[static_cast<std::size_t>(most - counts.begin())].filename().string(), *most, kHowToGetData);
}

/// Throws DataError if two of the batches of `count` records that `data` consists of are equal.
void require_different_batches(const std::vector<fs::path>& paths, const Dataset& data, std::int64_t count) {
  const auto* images = data.inputs.data<std::uint8_t>();
  for (std::size_t i = 0; i < paths.size(); ++i) {
    for (std::size_t j = i + 1; j < paths.size(); ++j) {
      const auto batch = [&](std::size_t index) { return images + static_cast<std::int64_t>(index) * count * kPixels; };
      throw_if<DataError>(std::memcmp(batch(i), batch(j), static_cast<std::size_t>(count * kPixels)) == 0,
                          "{} has the images of {}: expected different batches; {}", paths[j].string(),
                          paths[i].filename().string(), kHowToGetData);
    }
  }
}

Dataset load_batches(const std::vector<fs::path>& paths, const std::vector<std::string>& classes) {
  std::vector<FileReader> files;
  std::vector<std::int64_t> counts;
  std::int64_t total = 0;
  for (const fs::path& path : paths) {
    counts.push_back(count_records(files.emplace_back(path), path));
    total += counts.back();
    require_memory_for(path.string(), static_cast<std::uint64_t>(files.back().size()));
  }
  require_equal_counts(paths, counts);
  require_memory_for(fmt::format("the data set in {}", paths.front().parent_path().string()),
                     static_cast<std::uint64_t>(total * kRecord));
  Dataset dataset = make_dataset(total, kSide, classes);
  auto* images = dataset.inputs.mutable_data<std::uint8_t>();
  auto* labels = dataset.targets.mutable_data<std::int32_t>();
  for (std::size_t i = 0; i < paths.size(); ++i) {
    read_records(files[i], paths[i], counts[i], images, labels);
    images += counts[i] * kPixels;
    labels += counts[i];
  }
  require_different_batches(paths, dataset, counts.front());
  return dataset;
}

std::vector<std::string> class_names(const fs::path& folder) {
  const fs::path path = folder / "batches.meta.txt";
  std::error_code error;
  if (!fs::exists(fs::symlink_status(path, error))) {
    return {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};
  }
  const std::vector<std::string> names = read_lines(path);
  const std::set<std::string> different(names.begin(), names.end());
  throw_if<DataError>(
      names.size() != kClasses || different.size() != kClasses,
      "{0} is not valid: expected {3} different class names, one per line, got {1}, {2} of them different; correct the "
      "file, or delete it to use the standard names",
      path.string(), names.size(), different.size(), kClasses);
  return names;
}

/// Returns what was read, `files` batches, and how many other entries the folder has.
DataSource source_of(const std::vector<fs::path>& entries, std::int64_t files) {
  DataSource source{.files = files};
  for (const fs::path& path : entries) {
    const std::string name = path.filename().string();
    if (!batch_number(path) && name != kTestBatch && name != "batches.meta.txt" && name != "readme.html") {
      ++source.left_out["beside the batches of CIFAR-10"];
    }
  }
  return source;
}

}  // namespace

bool is_cifar10(const fs::path& folder) {
  std::error_code error;
  return has_batches(list_folder(folder)) || fs::is_directory(folder / kInnerFolder, error);
}

TrainTest load_cifar10(const fs::path& folder) {
  const std::vector<fs::path> entries = list_folder(folder);
  throw_if<DataError>(entries.empty(), "folder {} is empty; {}", folder.string(), kHowToGetData);
  std::error_code error;
  if (!has_batches(entries) && fs::is_directory(folder / kInnerFolder, error)) {
    TrainTest data = load_cifar10(folder / kInnerFolder);
    if (entries.size() > 1) {
      data.source.left_out[fmt::format("beside {}/", kInnerFolder)] = static_cast<std::int64_t>(entries.size()) - 1;
    }
    return data;
  }
  const std::vector<fs::path> batches = train_files(folder, entries);
  const fs::path test_batch = folder / kTestBatch;
  throw_if<DataError>(!fs::exists(fs::symlink_status(test_batch, error)), "{} has no test_batch.bin; {}",
                      folder.string(), kHowToGetData);
  const std::vector<std::string> classes = class_names(folder);
  TrainTest data{load_batches(batches, classes), load_batches({test_batch}, classes),
                 source_of(entries, static_cast<std::int64_t>(batches.size()) + 1)};
  throw_if<DataError>(data.train.size() == kOfficialBatches * kOfficialBatch && data.test.size() < kOfficialBatch,
                      "{} has {} images: expected the {} of CIFAR-10; delete it, then {}", test_batch.string(),
                      data.test.size(), kOfficialBatch, kHowToGetData);
  const std::int64_t per_batch = data.train.size() / std::ssize(batches);
  data.source.notes = sanity_check(data.train, data.test, [&](std::int64_t i) {
    return i < data.train.size() ? fmt::format("image {} of {}", i % per_batch,
                                               batches[static_cast<std::size_t>(i / per_batch)].filename().string())
                                 : fmt::format("image {} of {}", i - data.train.size(), kTestBatch);
  });
  return data;
}

void write_cifar10_batch(const fs::path& path, const Tensor& images, const Tensor& labels) {
  STAGECOACH_CHECK(
      images.dtype() == DType::uint8 && labels.dtype() == DType::int32 && labels.dims() == 1 && labels.size(0) > 0 &&
          images.shape() == Shape({labels.size(0), 3, kSide, kSide}) && images.device().type == DeviceType::cpu &&
          labels.device().type == DeviceType::cpu,
      "write_cifar10_batch: expected images uint8[N, 3, 32, 32] and labels int32[N] on a CPU, got {} and {}",
      describe(images), describe(labels));
  const auto* pixels = images.data<std::uint8_t>();  // [N, 3, 32, 32]
  const auto* label = labels.data<std::int32_t>();   // [N]
  AtomicFile file(path);
  std::vector<std::uint8_t> record(static_cast<std::size_t>(1 + kPixels));
  for (std::int64_t i = 0; i < labels.size(0); ++i) {
    STAGECOACH_CHECK(label[i] >= 0 && label[i] < kClasses,
                     "write_cifar10_batch: expected labels from 0 to 9, got {} for record {}", label[i], i);
    record[0] = static_cast<std::uint8_t>(label[i]);
    std::copy_n(pixels + i * kPixels, kPixels, record.begin() + 1);
    file.write(record.data(), record.size());
  }
  file.commit();
}

}  // namespace stagecoach
