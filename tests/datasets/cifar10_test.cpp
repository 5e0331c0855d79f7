#include "datasets/cifar10.h"

#include <unistd.h>

#include <cstdlib>
#include <map>

#include "support.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

/// `count` records; record i has label i % 10 and bytes (i + first) % 256.
std::string records(int count, int first = 0) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    bytes += static_cast<char>(i % 10);
    bytes += std::string(3072, static_cast<char>(i + first));
  }
  return bytes;
}

void expect_load_error(const fs::path& folder, const std::vector<std::string>& parts) {
  expect_error<DataError>([&] { load_cifar10(folder); }, parts);
}

TEST(Cifar10, WhatIsWrittenIsRead) {
  const TemporaryFolder folder;
  const Dataset all = counting_dataset(208);
  const Dataset train{all.inputs.narrow(0, 201), all.targets.narrow(0, 201), all.classes};
  const Dataset test{all.inputs.narrow(201, 7), all.targets.narrow(201, 7), all.classes};
  write_cifar10_batch(folder / "data_batch_1.bin", train.inputs, train.targets);
  write_cifar10_batch(folder / "test_batch.bin", test.inputs, test.targets);
  EXPECT_EQ(fs::file_size(folder / "data_batch_1.bin"), 201U * 3073U);

  const TrainTest read = load_cifar10(folder.path());
  EXPECT_EQ(read.train.inputs.shape(), Shape({201, 3, 32, 32}));
  EXPECT_EQ(read.train.inputs.to_vector<std::uint8_t>(), train.inputs.to_vector<std::uint8_t>());
  EXPECT_EQ(read.train.targets.to_vector<std::int32_t>(), train.targets.to_vector<std::int32_t>());
  EXPECT_EQ(read.test.inputs.to_vector<std::uint8_t>(), test.inputs.to_vector<std::uint8_t>());
  EXPECT_EQ(read.test.size(), 7);
  EXPECT_EQ(read.train.classes.front(), "airplane");
}

TEST(Cifar10, TheRecordIsLabelThenPlanes) {
  const TemporaryFolder folder;
  write_text_file(folder / "data_batch_1.bin",
                  std::string(1, 7) + std::string(1024, 'R') + std::string(1024, 'G') + std::string(1024, 'B'));
  write_text_file(folder / "test_batch.bin", records(1));
  const Dataset train = load_cifar10(folder.path()).train;
  EXPECT_EQ(train.targets.item(), 7);
  const auto* images = train.inputs.data<std::uint8_t>();
  EXPECT_EQ(images[0], 'R');
  EXPECT_EQ(images[1023], 'R');
  EXPECT_EQ(images[1024], 'G');
  EXPECT_EQ(images[3071], 'B');
}

TEST(Cifar10, BatchesComeInNumericOrderAndTheParentFolderWorks) {
  const TemporaryFolder folder;
  const fs::path inner = folder / "cifar-10-batches-bin";
  for (int number = 10; number > 0; --number) {
    write_text_file(inner / ("data_batch_" + std::to_string(number) + ".bin"), records(1, number));
  }
  write_text_file(inner / "data_batch_x.bin", "not a batch");
  write_text_file(inner / "test_batch.bin", records(2));
  write_text_file(inner / "batches.meta.txt",
                  "\xef\xbb\xbf"
                  "a\nb\nc\nd\ne\nf\ng\nh\ni\r\nj\n\n");
  const TrainTest read = load_cifar10(folder.path());
  ASSERT_EQ(read.train.size(), 10);
  const auto* images = read.train.inputs.data<std::uint8_t>();
  EXPECT_EQ(images[0], 1);
  EXPECT_EQ(images[3072], 2);
  EXPECT_EQ(images[9 * 3072], 10);
  EXPECT_EQ(describe(read), "Data: 10 training and 2 test images of 10 classes, from 11 files");
  EXPECT_EQ(describe_left_out(read.source), "Left out: 1 beside the batches of CIFAR-10");
  fs::create_directory(folder / "train");
  EXPECT_EQ(load_cifar10(folder.path()).source.left_out.at("beside cifar-10-batches-bin/"), 1);
  EXPECT_EQ(read.test.classes, (std::vector<std::string>{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}));
}

TEST(Cifar10, MissingFoldersAndFilesAreNamed) {
  const TemporaryFolder folder;
  expect_load_error(folder / "nowhere", {"nowhere is missing", "download_cifar10.sh", "the data set `generated`"});
  expect_load_error(folder.path(), {folder.path().string(), "is empty", "download_cifar10.sh"});
  write_text_file(folder / "file", "x");
  expect_load_error(folder / "file", {"file is not a folder"});
  write_text_file(folder / "test_batch.bin", records(1));
  expect_load_error(folder.path(), {"lacks data_batch_1.bin", "binary version", "download_cifar10.sh"});
  fs::remove(folder / "test_batch.bin");
  write_text_file(folder / "data_batch_1.bin", records(1));
  expect_load_error(folder.path(), {"has no test_batch.bin", "download_cifar10.sh"});
}

TEST(Cifar10, BatchesThatLackOneAreRefused) {
  const TemporaryFolder folder;
  write_text_file(folder / "test_batch.bin", records(1));
  write_text_file(folder / "data_batch_2.bin", records(1, 2));
  expect_load_error(folder.path(), {"lacks data_batch_1.bin, but has data_batch_2.bin"});
  write_text_file(folder / "data_batch_1.bin", records(1, 1));
  write_text_file(folder / "data_batch_5.bin", records(1, 5));
  expect_load_error(folder.path(), {"lacks data_batch_3.bin, but has data_batch_5.bin"});
  fs::remove(folder / "data_batch_5.bin");
  EXPECT_EQ(load_cifar10(folder.path()).train.size(), 2);
}

TEST(Cifar10, ABatchOfNumberZeroIsRefused) {
  const TemporaryFolder folder;
  write_text_file(folder / "test_batch.bin", records(1));
  write_text_file(folder / "data_batch_0.bin", records(1, 1));
  write_text_file(folder / "data_batch_1.bin", records(1, 2));
  expect_load_error(folder.path(), {"data_batch_0.bin: expected batches numbered 1, 2, 3, …, got 0"});
}

TEST(Cifar10, ABatchThatIsThereTwiceIsRefused) {
  const TemporaryFolder folder;
  write_text_file(folder / "test_batch.bin", records(1));
  write_text_file(folder / "data_batch_1.bin", records(1, 1));
  write_text_file(folder / "data_batch_01.bin", records(1, 2));
  expect_load_error(folder.path(), {"data_batch_01.bin and ", "data_batch_1.bin are both batch 1"});
  fs::rename(folder / "data_batch_01.bin", folder / "data_batch_2.bin");
  EXPECT_EQ(load_cifar10(folder.path()).train.size(), 2);
  write_text_file(folder / "data_batch_2.bin", records(1, 1));
  expect_load_error(folder.path(), {"data_batch_2.bin has the images of data_batch_1.bin"});
}

TEST(Cifar10, ABatchThatIsShorterThanTheOthersIsRefused) {
  const TemporaryFolder folder;
  write_text_file(folder / "test_batch.bin", records(1));
  write_text_file(folder / "data_batch_1.bin", records(3, 1));
  write_text_file(folder / "data_batch_2.bin", records(2, 2));
  expect_load_error(folder.path(), {"data_batch_2.bin has 2 images, but data_batch_1.bin has 3"});
  for (int number = 1; number <= 5; ++number) {  // the sizes of CIFAR-10 itself
    write_text_file(folder / ("data_batch_" + std::to_string(number) + ".bin"), records(10000, number));
  }
  write_text_file(folder / "test_batch.bin", records(9999));
  expect_load_error(folder.path(), {"test_batch.bin has 9999 images: expected the 10000 of CIFAR-10"});
}

TEST(Cifar10, OnlyTheNamesOfBatchesMakeAFolderCifar10) {
  const TemporaryFolder folder;
  write_text_file(folder / "model.bin", "weights");
  write_text_file(folder / "data_batch_.bin", "no number");
  EXPECT_FALSE(is_cifar10(folder.path()));
  write_text_file(folder / "test_batch.bin", records(1));
  EXPECT_TRUE(is_cifar10(folder.path()));
}

TEST(Cifar10, DamagedFilesAreNamedWithTheByte) {
  const TemporaryFolder folder;
  write_text_file(folder / "data_batch_1.bin", records(2));
  write_text_file(folder / "test_batch.bin", "");
  expect_load_error(folder.path(), {"test_batch.bin is empty"});
  write_text_file(folder / "test_batch.bin", records(3).substr(0, 7000));
  expect_load_error(folder.path(),
                    {"test_batch.bin is truncated", "a multiple of 3073 bytes, got 7000", "record 2", "byte 7000"});
  std::string wrong = records(100);
  wrong[70 * 3073] = 10;
  write_text_file(folder / "test_batch.bin", wrong);
  expect_load_error(folder.path(), {"test_batch.bin", "0 to 9 in record 70 (at byte 215110), got 10"});
  wrong[70 * 3073] = static_cast<char>(255);
  write_text_file(folder / "test_batch.bin", wrong);
  expect_load_error(folder.path(), {"got 255"});
}

TEST(Cifar10, AClassListOfTheWrongLengthIsRefused) {
  const TemporaryFolder folder;
  write_text_file(folder / "data_batch_1.bin", records(1));
  write_text_file(folder / "test_batch.bin", records(1));
  write_text_file(folder / "batches.meta.txt", "one\ntwo\n");
  expect_load_error(folder.path(), {"batches.meta.txt is not valid", "got 2", "10"});
  write_text_file(folder / "batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\na\n");
  expect_load_error(folder.path(), {"batches.meta.txt is not valid", "got 10, 9 of them different"});
}

TEST(Cifar10, FilesThatCannotBeReadAreNamed) {
  const TemporaryFolder folder;
  write_text_file(folder / "test_batch.bin", records(1));
  fs::create_directory(folder / "data_batch_1.bin");
  expect_load_error(folder.path(), {"data_batch_1.bin: expected a file, got a folder"});
  fs::remove(folder / "data_batch_1.bin");
  fs::create_symlink(folder / "gone", folder / "data_batch_1.bin");
  expect_load_error(folder.path(), {"data_batch_1.bin cannot be opened", "No such file"});
}

TEST(Cifar10, FilesWithoutPermissionAreNamed) {
  if (geteuid() == 0) {
    GTEST_SKIP() << "root may read every file";
  }
  const TemporaryFolder folder;
  write_text_file(folder / "test_batch.bin", records(1));
  write_text_file(folder / "data_batch_1.bin", records(1));
  fs::permissions(folder / "data_batch_1.bin", fs::perms::none);
  expect_load_error(folder.path(), {"data_batch_1.bin cannot be opened", "Permission denied"});
}

TEST(Cifar10, WritingRefusesWhatIsNoBatch) {
  const TemporaryFolder folder;
  const Dataset good = counting_dataset(3);
  const fs::path path = folder / "batch.bin";
  EXPECT_THROW(write_cifar10_batch(path, counting_dataset(3, 16).inputs, good.targets), Error);
  EXPECT_THROW(write_cifar10_batch(path, counting_dataset(2).inputs, good.targets), Error);
  EXPECT_THROW(write_cifar10_batch(path, good.targets, good.targets), Error);
  Tensor labels = good.targets.clone();
  labels.fill(10);
  expect_error<Error>([&] { write_cifar10_batch(path, good.inputs, labels); }, {"got 10 for record 0"});
  EXPECT_TRUE(fs::is_empty(folder.path())) << "a file was left behind";
  expect_error<DataError>([&] { write_cifar10_batch(folder / "no/batch.bin", good.inputs, good.targets); },
                          {"cannot write", "no/batch.bin", "No such file"});
}

TEST(Cifar10, TheRealSetIsWhole) {
  const char* where = std::getenv("STAGECOACH_CIFAR10");
  if (where == nullptr) {
    GTEST_SKIP() << "STAGECOACH_CIFAR10 names no folder with CIFAR-10 (scripts/download_cifar10.sh gets it)";
  }
  const TrainTest data = load_cifar10(where);
  EXPECT_EQ(data.train.inputs.shape(), Shape({50000, 3, 32, 32}));
  EXPECT_EQ(data.test.inputs.shape(), Shape({10000, 3, 32, 32}));
  for (const auto& [split, count] : {std::pair(data.train, 5000), std::pair(data.test, 1000)}) {
    std::map<std::int32_t, int> counts;
    for (const std::int32_t label : split.targets.to_vector<std::int32_t>()) {
      ++counts[label];
    }
    ASSERT_EQ(counts.size(), 10U);
    for (const auto& [label, found] : counts) {
      EXPECT_EQ(found, count) << "class " << label;
    }
  }
  EXPECT_EQ(data.train.targets.to_vector<std::int32_t>()[0], 6) << "the first training image is a frog";
  EXPECT_EQ(data.test.targets.to_vector<std::int32_t>()[0], 3) << "the first test image is a cat";
  EXPECT_EQ(data.train.classes[6], "frog");
}

}  // namespace
}  // namespace stagecoach
