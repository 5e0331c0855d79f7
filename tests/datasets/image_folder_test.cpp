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
    bytes.push_back(dataset.images.data<std::uint8_t>()[i * 3072]);
  }
  return bytes;
}

/// The smallest set: one image of one class in both splits.
void write_smallest(const TemporaryFolder& folder) {
  write_image(folder / "train/cat/a.png", grey(1));
  write_image(folder / "test/cat/a.png", grey(2));
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
  write_text(folder / "train/cat/notes.txt", "ignored");
  write_text(folder / "train/cat/.hidden.png", "ignored");
  write_text(folder / "train/README", "ignored");
  fs::create_directory(folder / "train/cat/folder.png");
  const TrainTest data = load_image_folder(folder.path());
  EXPECT_EQ(data.train.images.shape(), Shape({4, 3, 32, 32}));
  EXPECT_EQ(first_bytes(data.train), (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(data.train.labels.to_vector<std::int32_t>(), (std::vector<std::int32_t>{0, 0, 1, 1}));
  EXPECT_EQ(data.test.labels.to_vector<std::int32_t>(), (std::vector<std::int32_t>{1}));
  EXPECT_EQ(data.train.classes, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(data.test.classes, data.train.classes);
}

TEST(ImageFolder, AllKindsOfImagesWork) {
  const TemporaryFolder folder;
  write_smallest(folder);
  write_image(folder / "train/cat/b.jpg", plain_pixels(32, 32, {100, 100, 100}));
  write_image(folder / "train/cat/c.jpeg", plain_pixels(32, 32, {100}));
  write_image(folder / "train/cat/d.JPG", plain_pixels(100, 60, {100, 100, 100}));
  write_image(folder / "train/cat/e.png", plain_pixels(32, 32, {100, 100, 100, 7}));
  write_image(folder / "train/cat/f.png", plain_pixels(8, 5, {100, 7}));
  const std::vector<int> bytes = first_bytes(load_image_folder(folder.path()).train);
  ASSERT_EQ(bytes.size(), 6U);
  for (std::size_t i = 1; i < bytes.size(); ++i) {
    EXPECT_NEAR(bytes[i], 100, 3) << "image " << i;
  }
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
  write_text(folder / "test", "a file");
  expect_folder_error(folder.path(), {"test is not a folder"});
}

TEST(ImageFolder, ClassesWithoutImagesAreNamed) {
  const TemporaryFolder folder;
  write_smallest(folder);
  write_image(folder / "test/wolf/a.png", grey(1));
  expect_folder_error(folder.path(), {"class 'wolf'", "not in train/"});
  write_text(folder / "train/wolf/a.gif", "not a kind that is read");
  expect_folder_error(folder.path(), {"train/wolf has no images", "*.png"});
}

TEST(ImageFolder, BrokenImagesAreNamed) {
  const TemporaryFolder folder;
  write_smallest(folder);
  write_image(folder / "train/cat/b.png", {32, 32, 3, counting_dataset(1).images.to_vector<std::uint8_t>()});
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
  EXPECT_EQ(load_image_folder(folder.path(), 32 * 32).train.size(), 1);
  expect_error<DataError>([&] { load_image_folder(folder.path(), 32 * 32 - 1); },
                          {"train/cat/a.png is too large", "32 x 32 pixels"});
  fs::resize_file(folder / "train/cat/a.png", 1'048'576 + 8 * 1024 + 1);
  expect_error<DataError>([&] { load_image_folder(folder.path(), 32 * 32); },
                          {"train/cat/a.png is too large", "at most 1056768 bytes, got 1056769", "--max-megapixels"});
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
