#include "datasets/image_folder.h"

#include <sys/stat.h>

#include <cstdlib>

#include "datasets/open.h"
#include "image_writer.h"
#include "support.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

/// An image of one grey, which tells it from the others.
Pixels grey(int value) { return plain_pixels(32, 32, {static_cast<std::uint8_t>(value)}); }

/// The first byte of each image.
std::vector<int> first_bytes(const Dataset& dataset) {
  std::vector<int> bytes;
  for (std::int64_t i = 0; i < dataset.size(); ++i) {
    bytes.push_back(dataset.inputs.data<std::uint8_t>()[i * 3072]);
  }
  return bytes;
}

/// The smallest set: one image of one class in both splits.
void write_smallest(const TemporaryFolder& folder) {
  write_image(folder / "train/cat/a.png", grey(1));
  write_image(folder / "test/cat/a.png", grey(200));
}

void expect_folder_error(const fs::path& folder, const std::vector<std::string>& parts) {
  expect_error<DataError>([&] { load_image_folder(folder); }, parts);
}

TEST(ImageFolder, ClassesAndFilesAreSorted) {
  const TemporaryFolder folder;
  write_image(folder / "train/dog/b.png", grey(4));
  write_image(folder / "train/dog/a.PNG", grey(3));
  write_image(folder / "train/cat/10.png", grey(1));
  write_image(folder / "train/cat/9.png", grey(2));
  write_image(folder / "test/dog/x.png", grey(5));
  write_text_file(folder / "train/cat/notes.txt", "ignored");
  write_text_file(folder / "train/cat/.hidden.png", "ignored");
  write_text_file(folder / "train/README", "ignored");
  fs::create_directory(folder / "train/cat/folder.png");
  const TrainTest data = load_image_folder(folder.path());
  EXPECT_EQ(data.train.inputs.shape(), Shape({4, 3, 32, 32}));
  EXPECT_EQ(first_bytes(data.train), (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(data.train.targets.to_vector<std::int32_t>(), (std::vector<std::int32_t>{0, 0, 1, 1}));
  EXPECT_EQ(data.test.targets.to_vector<std::int32_t>(), (std::vector<std::int32_t>{1}));
  EXPECT_EQ(data.train.classes, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(data.test.classes, data.train.classes);
}

TEST(ImageFolder, AllKindsOfImagesWork) {
  const TemporaryFolder folder;
  write_smallest(folder);
  write_image(folder / "train/cat/b.jpg", plain_pixels(32, 32, {100, 100, 100}));
  write_image(folder / "train/cat/c.jpeg", plain_pixels(32, 32, {100}));
  write_image(folder / "train/cat/d.JPG", plain_pixels(100, 60, {100, 100, 100}));
  write_image(folder / "train/cat/e.png", plain_pixels(32, 32, {100, 100, 100, 255}));
  write_image(folder / "train/cat/f.png", plain_pixels(8, 5, {100, 255}));
  write_image(folder / "train/cat/g.jpg", plain_pixels(8, 5, {100}));
  fs::rename(folder / "train/cat/g.jpg", folder / "train/cat/g.jfif");
  write_image(folder / "train/cat/h.jpg", plain_pixels(8, 5, {100}));
  fs::rename(folder / "train/cat/h.jpg", folder / "train/cat/h.JPE");
  const std::vector<int> bytes = first_bytes(load_image_folder(folder.path()).train);
  ASSERT_EQ(bytes.size(), 8U);
  for (std::size_t i = 1; i < bytes.size(); ++i) {
    EXPECT_NEAR(bytes[i], 100, 3) << "image " << i;
  }
}

TEST(ImageFolder, FoldersInAClassBelongToIt) {
  const TemporaryFolder folder;
  write_smallest(folder);
  write_image(folder / "train/cat/siamese/b.png", grey(3));
  write_image(folder / "train/cat/siamese/old/a.png", grey(4));
  write_image(folder / "train/cat/persian/z.png", grey(2));
  const TrainTest data = load_image_folder(folder.path());
  EXPECT_EQ(first_bytes(data.train), (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(describe(data), "Data: 4 training and 1 test image of 1 class, from 5 files");
  EXPECT_EQ(describe_left_out(data.source), "");
}

TEST(ImageFolder, WhatIsLeftOutIsCounted) {
  const TemporaryFolder folder;
  write_smallest(folder);
  write_text_file(folder / "train/cat/b.webp", "");
  write_text_file(folder / "test/cat/c.WEBP", "");
  write_text_file(folder / "train/cat/notes", "");
  fs::create_symlink("nowhere", folder / "train/cat/other");
  write_text_file(folder / "train/cat/more/list.txt", "");
  write_text_file(folder / "train/cat/.DS_Store", "");
  write_text_file(folder / "train/stray.png", "");
  write_text_file(folder / "test/README", "");
  write_text_file(folder / "model.bin", "");
  fs::create_directory(folder / "val");
  fs::create_directory(folder / ".git");
  const TrainTest data = open_dataset(folder.path().string());
  EXPECT_EQ(data.source.files, 2);
  EXPECT_EQ(describe_left_out(data.source),
            "Left out: 2 .webp (images, but neither PNG nor JPEG), 2 beside train/ and test/, "
            "2 hidden, 2 outside the folders of classes, 1 .txt, 1 links that lead nowhere, 1 without an extension");
}

TEST(ImageFolder, ALineHasRoomForEightReasons) {
  DataSource source;
  for (char letter = 'a'; letter < 'm'; ++letter) {
    source.left_out[std::string(".") + letter] = 1;
  }
  source.left_out[".webp"] = 200;
  EXPECT_EQ(describe_left_out(source), "Left out: 200 .webp, 1 .a, 1 .b, 1 .c, 1 .d, 1 .e, 1 .f, 1 .g, 5 others");
}

TEST(ImageFolder, ALinkToAFolderAboveEndsNowhere) {
  const TemporaryFolder folder;
  write_smallest(folder);
  fs::create_directory_symlink(folder / "train/cat", folder / "train/cat/again");
  fs::create_directory_symlink(folder / "train", folder / "train/cat/split");
  fs::create_directory_symlink(folder.path(), folder / "train/cat/root");
  const TrainTest data = load_image_folder(folder.path());
  EXPECT_EQ(data.train.size(), 1);
  EXPECT_EQ(data.source.left_out.at("links to folders above them or read already"), 3);
}

// Each of 30 folders has two links to the next one, so that 2^30 paths lead to the last.
TEST(ImageFolder, AFolderIsReadOnceHoweverManyLinksLeadToIt) {
  const TemporaryFolder folder;
  write_smallest(folder);
  fs::path above = folder / "train/cat";
  for (int i = 0; i < 30; ++i) {
    const fs::path next = folder / ("links" + std::to_string(i));
    fs::create_directory(next);
    fs::create_directory_symlink(next, above / "one");
    fs::create_directory_symlink(next, above / "other");
    above = next;
  }
  fs::copy_file(folder / "train/cat/a.png", above / "b.png");
  const TrainTest data = load_image_folder(folder.path());
  EXPECT_EQ(data.train.size(), 2);
  EXPECT_EQ(data.source.left_out.at("links to folders above them or read already"), 30);
}

TEST(ImageFolder, ImagesAreDecodedAtTheSizeThatIsAskedFor) {
  const TemporaryFolder folder;
  Pixels stripes = plain_pixels(64, 64, {0});  // of one pixel: at 32 pixels they are grey
  for (std::size_t i = 0; i < stripes.bytes.size(); ++i) {
    stripes.bytes[i] = i % 2 == 0 ? 255 : 0;
  }
  write_image(folder / "train/cat/a.png", stripes);
  write_image(folder / "test/cat/a.png", grey(2));
  const Tensor images = load_image_folder(folder.path(), {.image_size = 64}).train.inputs;
  ASSERT_EQ(images.shape(), Shape({1, 3, 64, 64}));
  EXPECT_EQ(images.data<std::uint8_t>()[0], 255);
  EXPECT_EQ(images.data<std::uint8_t>()[1], 0);
}

TEST(ImageFolder, ImagesThatDoNotFitIntoMemoryAreRefused) {
  const TemporaryFolder folder;
  write_smallest(folder);
  expect_error<DataError>([&] { load_image_folder(folder.path(), {.image_size = 4'000'000}); },
                          {"at 4000000 x 4000000 pixels"});
}

TEST(ImageFolder, AnotherLayoutIsExplained) {
  const TemporaryFolder folder;
  expect_folder_error(folder / "nowhere", {"nowhere is missing"});
  write_image(folder / "cat/a.png", grey(1));
  expect_folder_error(folder.path(), {"has no folder train/", "/train/<class>/*.png", "/test/<class>/"});
  write_image(folder / "train/cat/a.png", grey(1));
  expect_folder_error(folder.path(), {"has no folder test/", "/test/<class>/"});
  fs::create_directory(folder / "test");
  expect_folder_error(folder.path(), {"test has no class folders", "/<class>/"});
  fs::remove(folder / "test");
  write_text_file(folder / "test", "a file");
  expect_folder_error(folder.path(), {"test is not a folder"});
}

TEST(ImageFolder, ClassesWithoutImagesAreNamed) {
  const TemporaryFolder folder;
  write_smallest(folder);
  write_image(folder / "test/wolf/a.png", grey(1));
  expect_folder_error(folder.path(), {"class 'wolf'", "not in train/", "train/ has cat", "rename the folder"});
  write_text_file(folder / "train/wolf/a.gif", "not a kind that is read");
  expect_folder_error(folder.path(), {"train/wolf has no images", "*.png"});
}

TEST(ImageFolder, BrokenImagesAreNamed) {
  const TemporaryFolder folder;
  write_smallest(folder);
  write_image(folder / "train/cat/b.png", {32, 32, 3, counting_dataset(1).inputs.to_vector<std::uint8_t>()});
  fs::resize_file(folder / "train/cat/b.png", fs::file_size(folder / "train/cat/b.png") / 2);
  expect_folder_error(folder.path(), {"train/cat/b.png cannot be decoded"});
  fs::remove(folder / "train/cat/b.png");
  fs::create_symlink(folder / "gone", folder / "train/cat/c.png");
  expect_folder_error(folder.path(), {"train/cat/c.png cannot be opened"});
}

TEST(ImageFolder, LinksThatLeadNowhereAreNamed) {
  for (const char* split : {"train", "test"}) {
    const TemporaryFolder folder;
    write_smallest(folder);
    const std::string dog = std::string(split) + "/dog";
    fs::create_symlink("gone", folder / dog);
    expect_folder_error(folder.path(), {"link ", dog + " cannot be opened: No such file"});
    fs::remove(folder / dog);
    fs::create_symlink("dog", folder / dog);
    expect_folder_error(folder.path(), {"link ", dog + " cannot be opened: Too many levels of symbolic links"});
  }
  const TemporaryFolder folder;
  write_smallest(folder);
  fs::create_symlink("cat", folder / "train/dog");
  fs::create_symlink("gone", folder / "train/cat/notes.txt");
  EXPECT_EQ(load_image_folder(folder.path()).train.classes, (std::vector<std::string>{"cat", "dog"}))
      << "links to folders are good, and links that are no images do not matter";
  fs::remove_all(folder / "train");
  fs::remove_all(folder / "test");
  fs::create_symlink("nowhere", folder / "train");
  fs::create_symlink("nowhere", folder / "test");
  expect_error<DataError>([&] { open_dataset(folder.path().string()); }, {"train is missing"});
}

TEST(ImageFolder, NothingWaitsForAPipe) {
  const TemporaryFolder folder;
  write_smallest(folder);
  ASSERT_EQ(::mkfifo((folder / "train/dog").c_str(), 0600), 0);
  expect_folder_error(folder.path(), {"train/dog is neither a class folder nor a file"});
  fs::remove(folder / "train/dog");
  ASSERT_EQ(::mkfifo((folder / "train/cat/b.png").c_str(), 0600), 0);
  expect_folder_error(folder.path(), {"train/cat/b.png is not a regular file"});
}

TEST(ImageFolder, LargeImagesAndFilesAreRefused) {
  const TemporaryFolder folder;
  write_smallest(folder);
  EXPECT_EQ(load_image_folder(folder.path(), {.max_pixels = 32 * 32}).train.size(), 1);
  expect_error<DataError>([&] { load_image_folder(folder.path(), {.max_pixels = 32 * 32 - 1}); },
                          {"train/cat/a.png is too large", "32 x 32 pixels"});
  fs::resize_file(folder / "train/cat/a.png", 1'048'576 + 8 * 1024 + 1);
  expect_error<DataError>([&] { load_image_folder(folder.path(), {.max_pixels = 32 * 32}); },
                          {"train/cat/a.png is too large", "at most 1056768 bytes, got 1056769", "`max_pixels`"});
}

TEST(ImageFolder, RealJpegsAreRead) {
  const char* where = std::getenv("STAGECOACH_CIFAR10_IMAGES");
  if (where == nullptr) {
    GTEST_SKIP() << "STAGECOACH_CIFAR10_IMAGES names no folder with train/<class>/ and test/<class>/";
  }
  const TrainTest data = open_dataset(where);
  EXPECT_EQ(data.train.size(), 50000);
  EXPECT_EQ(data.test.size(), 10000);
  EXPECT_EQ(data.train.classes.size(), 10U);
}

}  // namespace
}  // namespace stagecoach
