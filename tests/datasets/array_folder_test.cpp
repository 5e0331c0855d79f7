#include "datasets/array_folder.h"

#include "datasets/fingerprint.h"
#include "datasets/loader.h"
#include "datasets/npy.h"
#include "support.h"

namespace stagecoach {
namespace {

TrainTest counting_data() { return {counting_dataset(23, 4), counting_dataset(5, 4)}; }

TEST(ArrayFolder, ALoaderOfFilesMakesTheBatchesOfTheMemory) {
  const TemporaryFolder folder;
  const TrainTest memory = counting_data();
  write_array_folder(folder / "new", memory);
  const TrainTest files = load_array_folder(folder / "new");
  EXPECT_EQ(files.train.classes, memory.train.classes);
  EXPECT_EQ(describe(files), "Data: 23 training and 5 test images of 10 classes, from 4 files");
  EXPECT_EQ(fingerprint_of(files), fingerprint_of(memory));
  const LoaderSettings settings{.batch_size = 4, .augment = true, .shard = 1, .shards = 2, .image_size = 6};
  Loader expected(memory.train, settings);
  Loader loader(files.train, settings);
  expected.start_epoch(2, 1);
  loader.start_epoch(2, 1);
  while (const auto batch = expected.next()) {
    const auto got = loader.next();
    EXPECT_EQ(got->inputs.to_vector<std::uint8_t>(), batch->inputs.to_vector<std::uint8_t>());
    EXPECT_EQ(got->targets.to_vector<std::int32_t>(), batch->targets.to_vector<std::int32_t>());
  }
  EXPECT_FALSE(loader.next());
}

TEST(ArrayFolder, VectorsAndTokensHaveNoClasses) {
  const TemporaryFolder folder;
  const Dataset vectors{Tensor::full({3, 2}, 0.5), Tensor::zeros({3, 2}, DType::int32)};
  write_array_folder(folder.path(), {vectors, vectors});
  const TrainTest data = load_array_folder(folder.path());
  EXPECT_TRUE(data.train.classes.empty());
  EXPECT_EQ(describe(data), "Data: 3 training and 3 test samples, from 4 files");
}

TEST(ArrayFolder, WithoutNamesTheClassesAreNumbers) {
  const TemporaryFolder folder;
  write_array_folder(folder.path(), counting_data());
  std::filesystem::remove(folder / "classes.txt");
  EXPECT_EQ(load_array_folder(folder.path()).test.classes.back(), "9");
  write_text_file(folder / "classes.txt", "cat\ndog\n");
  expect_error<DataError>([&] { load_array_folder(folder.path()); },
                          {"train_targets.npy", "labels from 0 to 1", "got 2 in row 2"});
  write_text_file(folder / "classes.txt", "cat\ncat\n");
  expect_error<DataError>([&] { load_array_folder(folder.path()); }, {"classes.txt", "different class names"});
}

TEST(ArrayFolder, FilesThatDoNotFitTogetherAreRefused) {
  const TemporaryFolder folder;
  write_array_folder(folder.path(), counting_data());
  EXPECT_TRUE(is_array_folder(folder.path()));
  std::filesystem::rename(folder / "test_inputs.npy", folder / "test.npy");
  expect_error<DataError>([&] { load_array_folder(folder.path()); }, {"test_inputs.npy cannot be opened"});
  std::filesystem::copy(folder / "train_inputs.npy", folder / "test_inputs.npy");
  expect_error<DataError>([&] { load_array_folder(folder.path()); },
                          {"test_inputs.npy has 23 rows", "test_targets.npy has 5", "a target for each input"});
  NpyWriter other(folder / "test_inputs.npy", 5, {{3, 8, 8}, DType::uint8});
  other.write(counting_dataset(5, 8).inputs);
  other.commit();
  expect_error<DataError>([&] { load_array_folder(folder.path()); }, {"other shapes or types"});
}

TEST(ArrayFolder, AFileThatChangesItsSizeWhileInUseIsAnError) {
  for (const bool grows : {false, true}) {
    const TemporaryFolder folder;
    write_array_folder(folder.path(), counting_data());
    const TrainTest data = load_array_folder(folder.path());
    Loader loader(data.train, {.batch_size = 4, .prefetch = false});
    loader.start_epoch(1);
    ASSERT_TRUE(loader.next());
    const auto size = std::filesystem::file_size(folder / "train_inputs.npy");
    std::filesystem::resize_file(folder / "train_inputs.npy", grows ? size + 1 : size / 2);
    expect_error<DataError>([&] { loader.next(); }, {"train_inputs.npy changed while it was in use", "got"});
  }
}

// 100 GB, which occupy nothing on the disk as long as nothing but zeros is in them.
TEST(ArrayFolder, DataLargerThanTheMemoryAreLoaded) {
  const TemporaryFolder folder;
  constexpr std::int64_t kRows = 100'000;
  for (const char* split : {"train", "test"}) {
    const auto write = [&](const char* part, const SampleType& row, const char* dtype, const std::string& extents) {
      const auto path = folder / fmt::format("{}_{}.npy", split, part);
      std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({})}}", dtype, extents);
      header.resize(118, ' ');
      write_text_file(path, std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header);
      std::error_code error;
      std::filesystem::resize_file(path, 128 + kRows * row.shape.numel() * size_of(row.dtype), error);
      return !error;
    };
    if (!write("inputs", {{1 << 20}, DType::uint8}, "|u1", fmt::format("{}, {}", kRows, 1 << 20)) ||
        !write("targets", {{}, DType::int32}, "<i4", fmt::format("{},", kRows))) {
      GTEST_SKIP() << "the file system has no such large files";
    }
  }
  const TrainTest data = load_array_folder(folder.path());
  Loader loader(data.train, {.batch_size = 4});
  loader.start_epoch(1, kRows / 4 - 1);
  const auto batch = loader.next();
  EXPECT_EQ(batch->inputs.shape(), (Shape{4, 1 << 20}));
  EXPECT_EQ(batch->targets.to_vector<std::int32_t>(), std::vector<std::int32_t>(4));
}

}  // namespace
}  // namespace stagecoach
