#include "datasets/generated.h"

#include <string_view>
#include <system_error>
#include <vector>

#include "core/atomic_file.h"
#include "core/error.h"
#include "core/random.h"
#include "datasets/cifar10.h"
#include "datasets/files.h"
#include "datasets/shapes.h"

namespace stagecoach {
namespace {

Dataset generate_split(std::string_view split, std::int64_t size, std::uint64_t seed) {
  Dataset dataset = make_dataset(size, kShapeSide, {kShapeNames.begin(), kShapeNames.end()});
  auto* images = dataset.images.mutable_data<std::uint8_t>();  // [size, 3, 32, 32]
  auto* labels = dataset.labels.mutable_data<std::int32_t>();  // [size]
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
  if (size < 1 || size > kMostGenerated) {
    throw UsageError(fmt::format("generated data: {} {} pictures; there can be 1 … {}", size, split, kMostGenerated));
  }
}

}  // namespace

TrainTest generate(const GeneratedSettings& settings) {
  check_size("train", settings.train);
  check_size("test", settings.test);
  return {generate_split("train", settings.train, settings.seed), generate_split("test", settings.test, settings.seed)};
}

void write_generated(const std::filesystem::path& folder, const GeneratedSettings& settings) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw DataError(fmt::format("folder {} cannot be made: {}", folder.string(), error.message()));
  }
  for (const std::filesystem::path& path : list_folder(folder)) {
    const std::string name = path.filename().string();
    if (name.starts_with("data_batch_") && name != "data_batch_1.bin") {
      throw DataError(
          fmt::format("{} already holds {}, which would be mixed up with the generated pictures; choose "
                      "another folder",
                      folder.string(), name));
    }
  }
  const TrainTest data = generate(settings);
  write_cifar10_batch(folder / "data_batch_1.bin", data.train.images, data.train.labels);
  write_cifar10_batch(folder / "test_batch.bin", data.test.images, data.test.labels);
  AtomicFile names(folder / "batches.meta.txt");
  for (const std::string& name : data.train.classes) {
    names.write(name + "\n");
  }
  names.commit();
}

}  // namespace stagecoach
