#include "datasets/sanity_check.h"

#include <algorithm>
#include <filesystem>

#include "datasets/cifar10.h"
#include "datasets/image_folder.h"
#include "image_writer.h"
#include "support.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;
using Notes = std::vector<std::string>;

/// Images of one byte per channel and of two classes: image i has the bytes of `values[i]` and the label `labels[i]`.
Dataset tiny(const std::vector<int>& values, const std::vector<std::int32_t>& labels) {
  Dataset data = make_dataset(static_cast<std::int64_t>(values.size()), 1, {"cat", "dog"});
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::fill_n(data.inputs.mutable_data<std::uint8_t>() + 3 * i, 3, static_cast<std::uint8_t>(values[i]));
    data.targets.mutable_data<std::int32_t>()[i] = labels[i];
  }
  return data;
}

Notes check(const Dataset& train, const Dataset& test) {
  return sanity_check(train, test, [](std::int64_t i) { return "#" + std::to_string(i); });
}

TEST(SanityCheck, FindsNothingWhereNothingIs) { EXPECT_EQ(check(tiny({1, 2}, {0, 1}), tiny({3, 4}, {1, 0})), Notes{}); }

TEST(SanityCheck, CountsCopiesAndTheirOtherLabels) {
  EXPECT_EQ(check(tiny({7, 5, 7, 5, 5}, {0, 1, 0, 0, 1}), tiny({1, 2}, {0, 1})),
            Notes{"training images that are copies of others: 3 of 5 (1 with another label); first: #2 = #0"});
  EXPECT_EQ(check(tiny({7, 5}, {0, 1}), tiny({1, 1, 5, 1, 7}, {0, 1, 0, 1, 0})),
            Notes{"test images that are also training images: 2 of 5, which makes the test accuracy too good; first: "
                  "#4 = #1"});
}

TEST(SanityCheck, ComparesAllBytes) {
  Dataset train = counting_dataset(2);
  auto* images = train.inputs.mutable_data<std::uint8_t>();
  std::copy_n(images, 3072, images + 3072);
  const Dataset test = counting_dataset(21);
  for (const int changed : {0, 1000, 3071}) {
    images[3072 + changed] ^= 1;
    EXPECT_EQ(check(train, test).front().find("copies"), std::string::npos) << changed;
    images[3072 + changed] ^= 1;
  }
  EXPECT_NE(check(train, test).front().find("copies of others: 1 of 2"), std::string::npos);
}

TEST(SanityCheck, NamesClassesThatAreHalfThere) {
  EXPECT_EQ(check(tiny({1, 2}, {0, 1}), tiny({3}, {1})), Notes{"a class without test images: 'cat'"});
  EXPECT_EQ(check(tiny({1, 2}, {0, 0}), tiny({3, 4}, {1, 0})), Notes{"a class without training images: 'dog'"});
}

TEST(SanityCheck, SaysThatATestOfTrainingImagesMeansNothing) {
  EXPECT_EQ(check(tiny({1, 2}, {0, 1}), tiny({1, 2}, {0, 1})),
            Notes{"test images that are also training images: 2 of 2, so the test accuracy says nothing about new "
                  "images; first: #2 = #0"});
}

TEST(SanityCheck, SaysThatThereIsOnlyOneClass) {
  Dataset train = tiny({1, 2}, {0, 0});
  Dataset test = tiny({3}, {0});
  train.classes = test.classes = {"cat"};
  EXPECT_EQ(check(train, test), Notes{"'cat' is the only class, so every prediction is right"});
}

TEST(SanityCheck, NamesTheFilesOfAFolderOfImages) {
  const TemporaryFolder folder;
  const auto grey = [&](const char* file, int value) {
    write_image(folder / file, plain_pixels(32, 32, {static_cast<std::uint8_t>(value)}));
  };
  grey("train/cat/a.png", 1);
  grey("train/cat/b.png", 1);
  grey("train/dog/a.png", 2);
  grey("test/cat/a.png", 3);
  grey("test/cat/b.png", 2);
  const std::string root = folder.path().string();
  EXPECT_EQ(
      load_image_folder(root).source.notes,
      (Notes{"training images that are copies of others: 1 of 3 (0 with another label); first: " + root +
                 "/train/cat/b.png = " + root + "/train/cat/a.png",
             "test images that are also training images: 1 of 2, which makes the test accuracy too good; first: " +
                 root + "/test/cat/b.png = " + root + "/train/dog/a.png",
             "a class without test images: 'dog'"}));
  fs::remove_all(folder / "test");
  fs::create_directory_symlink("train", folder / "test");
  expect_error<DataError>([&] { load_image_folder(root); }, {"/test is the same folder as ", "/train: "});
  fs::remove(folder / "test");
  fs::copy(folder / "train", folder / "test", fs::copy_options::recursive);
  EXPECT_EQ(load_image_folder(root).source.notes.back(),
            "test images that are also training images: 3 of 3, so the test accuracy says nothing about new images; "
            "first: " +
                root + "/test/cat/a.png = " + root + "/train/cat/a.png");
}

TEST(SanityCheck, NamesTheRecordsOfCifar10) {
  const TemporaryFolder folder;
  const Dataset all = counting_dataset(30);
  const auto write = [&](const char* file, std::int64_t first) {
    write_cifar10_batch(folder / file, all.inputs.narrow(first, 10), all.targets.narrow(first, 10));
  };
  write("data_batch_1.bin", 0);
  write("data_batch_2.bin", 10);
  write("test_batch.bin", 15);
  EXPECT_EQ(load_cifar10(folder.path()).source.notes,
            Notes{"test images that are also training images: 5 of 10, which makes the test accuracy too good; first: "
                  "image 0 of test_batch.bin = image 5 of data_batch_2.bin"});
  write("test_batch.bin", 10);
  EXPECT_EQ(load_cifar10(folder.path()).source.notes,
            Notes{"test images that are also training images: 10 of 10, so the test accuracy says nothing about new "
                  "images; first: image 0 of test_batch.bin = image 0 of data_batch_2.bin"});
}

}  // namespace
}  // namespace stagecoach
