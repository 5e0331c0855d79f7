#include "datasets/text.h"

#include "datasets/fingerprint.h"
#include "datasets/loader.h"
#include "datasets/open.h"
#include "support.h"

namespace stagecoach {
namespace {

/// "abcdefghij…" of `size` bytes.
std::string letters(std::size_t size) {
  std::string text;
  for (std::size_t i = 0; i < size; ++i) {
    text.push_back(static_cast<char>('a' + i % 26));
  }
  return text;
}

std::pair<std::string, std::string> sample(const Dataset& data, std::int64_t index) {
  const SampleType type = data.samples->input();
  Tensor input = Tensor::empty(type.shape, type.dtype);
  Tensor target = Tensor::empty(type.shape, type.dtype);
  data.samples->read(index, input, target);
  const auto text_of = [](const Tensor& tokens) {
    std::string text;
    for (const std::int32_t token : tokens.to_vector<std::int32_t>()) {
      text.push_back(static_cast<char>(token));
    }
    return text;
  };
  return {text_of(input), text_of(target)};
}

TEST(Text, BecomesSequencesAndTheByteAfterEach) {
  const TemporaryFolder folder;
  write_text_file(folder / "t", letters(100));
  const TrainTest data = open_dataset("text:" + (folder / "t").string(), {}, {.context = 4});
  EXPECT_EQ(data.train.size(), 22);  // of 90 bytes, the last of which is only a target
  EXPECT_EQ(data.test.size(), 2);    // of 10
  EXPECT_EQ(sample(data.train, 0), std::pair(std::string("abcd"), std::string("bcde")));
  EXPECT_EQ(sample(data.train, 21), std::pair(letters(100).substr(84, 4), letters(100).substr(85, 4)));
  EXPECT_EQ(sample(data.test, 1), std::pair(letters(100).substr(94, 4), letters(100).substr(95, 4)));
  EXPECT_EQ(std::ssize(data.train.classes), kByteValues);
  EXPECT_EQ(data.train.classes[65], "A");
  EXPECT_EQ(describe(data), "Data: 22 training and 2 test samples of 256 classes, from 1 file");
}

TEST(Text, KeepsAllBytesAndStopsWhereItIsTold) {
  const TemporaryFolder folder;
  std::string bytes(30, '\0');
  bytes[1] = '\xff';
  write_text_file(folder / "t", bytes + letters(70));
  const TrainTest data = load_text("text:" + (folder / "t").string(), {.context = 2, .max_bytes = 40});
  EXPECT_EQ(sample(data.train, 0), std::pair(std::string("\0\xff", 2), std::string("\xff\0", 2)));
  EXPECT_EQ(data.train.size(), 17);  // of 36 bytes
  EXPECT_EQ(data.test.size(), 1);    // of 4
}

// Losses and samples in pages and tests depend on every byte of it.
TEST(Text, OfTheBookIsNeverEdited) {
  EXPECT_GE(book().size(), 300'000U);
  const TrainTest data = load_text("text:book");
  const Fingerprint fingerprint = fingerprint_of(data);
  EXPECT_EQ(fingerprint.train.digest, 854300390U);
  EXPECT_EQ(fingerprint.test.digest, 3530683695U);
}

TEST(Text, IsLoadedInBatches) {
  Loader loader(load_text("text:book", {.context = 8, .max_bytes = 1000}).train, {.batch_size = 5, .prefetch = false});
  loader.start_epoch(1);
  const Batch batch = *loader.next();
  EXPECT_EQ(batch.inputs.shape(), (Shape{5, 8}));
  EXPECT_EQ(batch.targets.shape(), (Shape{5, 8}));
  EXPECT_EQ(model_input(batch.inputs).dtype(), DType::int32);
}

TEST(Text, ErrorsSayWhatIsMissing) {
  const TemporaryFolder folder;
  const auto refused = [](const std::string& where, const std::vector<std::string>& parts) {
    expect_error<DataError>([&] { open_dataset(where, {}, {.context = 64}); }, parts);
  };
  const std::string file = (folder / "t").string();
  refused("text:", {"expected the name of a file after 'text:'", "text:book"});
  refused("text:" + file, {file});
  refused("text:" + folder.path().string(), {folder.path().string()});
  write_text_file(file, "");
  refused("text:" + file, {file, "too short", "at least 650 bytes", "got 0"});
  write_text_file(file, letters(649));
  refused("text:" + file, {"at least 650 bytes", "got 649", "smaller `context`"});
  write_text_file(file, letters(650));
  EXPECT_EQ(load_text("text:" + file).test.size(), 1);
  expect_error<UsageError>([] { load_text("text:book", {.context = 0}); }, {"`context`", "got 0"});
}

}  // namespace
}  // namespace stagecoach
