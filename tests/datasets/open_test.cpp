#include "datasets/open.h"

#include "datasets/array_folder.h"
#include "datasets/generated.h"
#include "image_writer.h"
#include "support.h"

namespace stagecoach {
namespace {

TEST(Open, GeneratedNeedsNoFiles) {
  const TrainTest data = open_dataset("generated");
  EXPECT_EQ(data.train.size(), 10000);
  EXPECT_EQ(data.test.size(), 2000);
}

TEST(Open, FoldersAreRecognised) {
  const TemporaryFolder folder;
  write_generated(folder / "binary/cifar-10-batches-bin", {.train = 3, .test = 2});
  EXPECT_EQ(open_dataset((folder / "binary").string()).train.size(), 3);
  EXPECT_EQ(open_dataset((folder / "binary/cifar-10-batches-bin/").string()).test.size(), 2);
  write_image(folder / "images/train/cat/a.png", plain_pixels(32, 32, {1}));
  write_image(folder / "images/test/cat/a.png", plain_pixels(32, 32, {2}));
  EXPECT_EQ(open_dataset((folder / "images").string()).train.classes, std::vector<std::string>{"cat"});
  EXPECT_EQ(open_dataset((folder / "images/").string()).test.size(), 1);
  write_array_folder(folder / "arrays", {counting_dataset(3, 4), counting_dataset(2, 4)});
  EXPECT_EQ(open_dataset((folder / "arrays").string()).test.size(), 2);
}

TEST(Open, OtherPlacesAreExplained) {
  const TemporaryFolder folder;
  const auto expect_open_error = [](const std::filesystem::path& where, const std::vector<std::string>& parts) {
    expect_error<DataError>([&] { open_dataset(where.string()); }, parts);
  };
  expect_open_error(folder.path(), {"contains no known data", "data_batch_1.bin", "train_inputs.npy", "train/<class>/",
                                    "scripts/download_cifar10.sh", "the data set `generated`"});
  expect_open_error(folder / "nowhere", {"nowhere is missing", "the data set `generated`"});
  expect_open_error("", {"is missing"});
  write_text_file(folder / "file", "");
  expect_open_error(folder / "file", {"is not a folder"});
  write_text_file(folder / "data_batch_1", "");
  expect_open_error(folder.path(), {"pickles of Python", "expected its binary version", "scripts/download_cifar10.sh"});
  std::filesystem::create_directories(folder / "half/train/cat");
  expect_open_error(folder / "half", {"has no folder test/"});
}

}  // namespace
}  // namespace stagecoach
