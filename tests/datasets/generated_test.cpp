#include "datasets/generated.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "datasets/cifar10.h"
#include "support.h"

namespace stagecoach {
namespace {

std::vector<std::uint8_t> pixels(const Dataset& dataset, std::int64_t start, std::int64_t count) {
  return dataset.inputs.narrow(start, count).to_vector<std::uint8_t>();
}

TEST(Generated, EqualSeedsGiveEqualBytesAndOthersDoNot) {
  const TrainTest a = generate({.train = 50, .test = 20, .seed = 3});
  const TrainTest b = generate({.train = 50, .test = 20, .seed = 3});
  const TrainTest c = generate({.train = 50, .test = 20, .seed = 4});
  EXPECT_EQ(pixels(a.train, 0, 50), pixels(b.train, 0, 50));
  EXPECT_EQ(a.test.targets.to_vector<std::int32_t>(), b.test.targets.to_vector<std::int32_t>());
  EXPECT_NE(pixels(a.train, 0, 50), pixels(c.train, 0, 50));
  EXPECT_NE(pixels(a.train, 0, 20), pixels(a.test, 0, 20));
}

TEST(Generated, EveryMachineMakesTheseBytes) {
  // FNV-1a over the images of seed 0. When this changes, everyone's generated data changed.
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::uint8_t byte : pixels(generate({.train = 100, .test = 1}).train, 0, 100)) {
    hash = (hash ^ byte) * 0x100000001b3;
  }
  EXPECT_EQ(hash, 1000313535001558953U);
}

TEST(Generated, ALargerSetBeginsWithTheSmallerOne) {
  const TrainTest small = generate({.train = 13, .test = 1});
  const TrainTest large = generate({.train = 40, .test = 25});
  EXPECT_EQ(pixels(large.train, 0, 13), pixels(small.train, 0, 13));
  EXPECT_EQ(large.train.targets.narrow(0, 13).to_vector<std::int32_t>(), small.train.targets.to_vector<std::int32_t>());
  EXPECT_EQ(pixels(large.test, 0, 1), pixels(small.test, 0, 1));
}

TEST(Generated, LabelsAreBalancedAndInNoSimpleOrder) {
  const std::vector<std::int32_t> labels = generate({.train = 500, .test = 1}).train.targets.to_vector<std::int32_t>();
  std::set<std::vector<std::int32_t>> orders;
  for (auto ten = labels.begin(); ten != labels.end(); ten += 10) {
    std::vector<std::int32_t> sorted(ten, ten + 10);
    orders.insert(sorted);
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(sorted, (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  }
  EXPECT_GT(orders.size(), 45U) << "the order of labels repeats";
}

// The mean colour of an image must not tell its class: whoever picks the class whose mean colour is nearest is
// right about as often as by chance (1 in 10).
TEST(Generated, ColourDoesNotTellTheClass) {
  constexpr std::int64_t kSize = 2000;
  const Dataset data = generate({.train = kSize, .test = 1}).train;
  const auto* images = data.inputs.data<std::uint8_t>();
  const auto* labels = data.targets.data<std::int32_t>();
  std::vector<std::array<double, 3>> colours(kSize);
  std::array<std::array<double, 3>, 10> classes{};
  for (std::int64_t i = 0; i < kSize; ++i) {
    for (std::size_t c = 0; c < 3; ++c) {
      const auto* plane = images + (i * 3 + static_cast<std::int64_t>(c)) * 1024;
      for (std::int64_t p = 0; p < 1024; ++p) {
        colours[static_cast<std::size_t>(i)][c] += plane[p] / 1024.0;
      }
      classes[static_cast<std::size_t>(labels[i])][c] += colours[static_cast<std::size_t>(i)][c] / (kSize / 10.0);
    }
  }
  int right = 0;
  for (std::int64_t i = 0; i < kSize; ++i) {
    const auto& colour = colours[static_cast<std::size_t>(i)];
    const auto distance = [&](const std::array<double, 3>& mean) {
      return std::hypot(mean[0] - colour[0], mean[1] - colour[1], mean[2] - colour[2]);
    };
    const auto nearest = std::min_element(classes.begin(), classes.end(),
                                          [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
    right += nearest - classes.begin() == labels[i] ? 1 : 0;
  }
  EXPECT_LT(right, kSize / 5);
  for (const auto& mean : classes) {
    for (const double channel : mean) {
      EXPECT_NEAR(channel, 127.5, 25) << "a class prefers a colour";
    }
  }
}

TEST(Generated, TheWrittenSetIsTheOneInMemory) {
  const TemporaryFolder folder;
  const GeneratedSettings settings{.train = 30, .test = 11, .seed = 5};
  write_generated(folder / "new/set", settings);
  const TrainTest read = load_cifar10(folder / "new/set");
  const TrainTest made = generate(settings);
  EXPECT_EQ(pixels(read.train, 0, 30), pixels(made.train, 0, 30));
  EXPECT_EQ(read.test.targets.to_vector<std::int32_t>(), made.test.targets.to_vector<std::int32_t>());
  EXPECT_EQ(read.train.classes, made.train.classes);
  EXPECT_EQ(read.train.classes[9], "checkerboard");
  write_generated(folder / "new/set", settings);  // over its own files
}

TEST(Generated, WhatCannotBeMadeIsRefused) {
  expect_error<UsageError>([] { generate({.train = 0}); }, {"train images, got 0"});
  expect_error<UsageError>([] { generate({.test = -1}); }, {"from 1 to 1000000 test images, got -1"});
  expect_error<UsageError>([] { generate({.train = 1'000'001}); }, {"train images, got 1000001"});
  const TemporaryFolder folder;
  const GeneratedSettings small{.train = 1, .test = 1};
  write_text_file(folder / "real/data_batch_2.bin", "");
  expect_error<DataError>([&] { write_generated(folder / "real", small); }, {"data_batch_2.bin", "another folder"});
  EXPECT_FALSE(std::filesystem::exists(folder / "real/data_batch_1.bin"));
  for (const char* name : {"data_batch_1.bin", "test_batch.bin"}) {
    const auto other = folder / "other";
    write_text_file(other / name, "real images");
    expect_error<DataError>([&] { write_generated(other, small); }, {name, "would be overwritten", "another folder"});
    write_text_file(other / "batches.meta.txt", "airplane\n");
    expect_error<DataError>([&] { write_generated(other, small); }, {name, "would be overwritten"});
    EXPECT_EQ(text_of_file(other / name), "real images");
    std::filesystem::remove_all(other);
  }
  write_text_file(folder / "file", "");
  expect_error<DataError>([&] { write_generated(folder / "file/set", small); }, {"cannot be created"});
}

}  // namespace
}  // namespace stagecoach
