#include "datasets/generated.h"

#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/base/atomic_file.h"
#include "core/base/throw_if.h"
#include "core/random.h"
#include "datasets/cifar10.h"
#include "datasets/files.h"
#include "datasets/shapes.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTrainFile = "data_batch_1.bin";
constexpr const char* kTestFile = "test_batch.bin";
constexpr const char* kNamesFile = "batches.meta.txt";

Dataset generate_split(std::string_view split, std::int64_t size, std::uint64_t seed) {
  Dataset dataset = make_dataset(size, kShapeSide, {kShapeNames.begin(), kShapeNames.end()});
  auto* images = dataset.inputs.mutable_data<std::uint8_t>();   // [size, 3, 32, 32]
  auto* labels = dataset.targets.mutable_data<std::int32_t>();  // [size]
  constexpr auto kClasses = static_cast<std::int64_t>(kShapeNames.size());
  std::vector<std::uint32_t> block;  // every class once, in a random order
  for (std::int64_t i = 0; i < size; ++i) {
    if (i % kClasses == 0) {
      block = Philox(seed, fmt::format("generated/{}/labels {}", split, i / kClasses))
                  .permutation(static_cast<std::uint32_t>(kClasses));
    }
    labels[i] = static_cast<std::int32_t>(block[static_cast<std::size_t>(i % kClasses)]);
    paint_shape(static_cast<ShapeClass>(labels[i]), Philox(seed, fmt::format("generated/{}/picture {}", split, i)),
                images + i * 3 * kShapeSide * kShapeSide);
  }
  return dataset;
}

void check_size(std::string_view split, std::int64_t size) {
  if (size < 1 || size > kMaxGenerated) {
    throw UsageError(
        fmt::format("generated data: expected from 1 to {} {} images, got {}", kMaxGenerated, split, size));
  }
}

/// Returns the text of batches.meta.txt: one class per line.
std::string names_of_classes() {
  std::string text;
  for (const auto& name : kShapeNames) {
    text += fmt::format("{}\n", name);
  }
  return text;
}

/// Returns whether the dataset in `folder` has the classes of the generated one.
bool is_generated(const fs::path& folder) {
  if (!fs::exists(folder / kNamesFile)) {
    return false;
  }
  const std::vector<std::uint8_t> text = read_file(folder / kNamesFile);
  return std::string(text.begin(), text.end()) == names_of_classes();
}

/// Throws DataError if `folder` contains images that were not generated, which would be lost or mixed up with the new
/// ones.
void require_no_other_images(const fs::path& folder) {
  for (const fs::path& path : list_folder(folder)) {
    const std::string name = path.filename().string();
    const bool would_be_replaced = name == kTrainFile || name == kTestFile;
    const bool would_be_mixed_in = name.starts_with("data_batch_") && !would_be_replaced;
    throw_if<DataError>(would_be_mixed_in || (would_be_replaced && !is_generated(folder)),
                        "{} already contains {}, which {} the generated images; choose another folder", folder.string(),
                        name, would_be_mixed_in ? "would be mixed up with" : "would be overwritten by");
  }
}

}  // namespace

TrainTest generate(const GeneratedSettings& settings) {
  check_size("train", settings.train);
  check_size("test", settings.test);
  return {generate_split("train", settings.train, settings.seed), generate_split("test", settings.test, settings.seed)};
}

TrainTest outline_of(const GeneratedSettings& settings) {
  const auto outline = [](std::int64_t size) {
    return make_dataset(size, kShapeSide, {kShapeNames.begin(), kShapeNames.end()}, {DeviceType::meta});
  };
  return {outline(settings.train), outline(settings.test)};
}

void write_generated(const fs::path& folder, const GeneratedSettings& settings) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw DataError(fmt::format("folder {} cannot be created: {}; check the path and its permissions", folder.string(),
                                error.message()));
  }
  require_no_other_images(folder);
  remove_abandoned_files(folder);
  const TrainTest data = generate(settings);
  AtomicFile names(folder / kNamesFile);  // first: it marks what a killed program leaves behind as generated
  names.write(names_of_classes());
  names.commit();
  write_cifar10_batch(folder / kTrainFile, data.train.inputs, data.train.targets);
  write_cifar10_batch(folder / kTestFile, data.test.inputs, data.test.targets);
}

}  // namespace stagecoach
