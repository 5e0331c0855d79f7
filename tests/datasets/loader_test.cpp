#include "datasets/loader.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/allocator.h"
#include "core/random.h"
#include "datasets/resize.h"
#include "support.h"

namespace stagecoach {
namespace {

constexpr std::int64_t kSide = 8;
constexpr std::int64_t kPixels = 3 * kSide * kSide;

/// Small images whose label is their number, so that a batch tells which samples are in it.
Dataset samples(std::int64_t size) {
  Dataset dataset = counting_dataset(size, kSide);
  auto* labels = dataset.targets.mutable_data<std::int32_t>();
  std::iota(labels, labels + size, 0);
  return dataset;
}

std::vector<Batch> take_all(Loader& loader) {
  std::vector<Batch> batches;
  while (auto batch = loader.next()) {
    batches.push_back(std::move(*batch));
  }
  return batches;
}

std::vector<Batch> epoch_of(Loader& loader, std::int64_t epoch, std::int64_t first_batch = 0) {
  loader.start_epoch(epoch, first_batch);
  return take_all(loader);
}

std::vector<std::int32_t> numbers(const std::vector<Batch>& batches) {
  std::vector<std::int32_t> all;
  for (const Batch& batch : batches) {
    const auto labels = batch.targets.to_vector<std::int32_t>();
    all.insert(all.end(), labels.begin(), labels.end());
  }
  return all;
}

void expect_equal(const std::vector<Batch>& a, const std::vector<Batch>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].index, b[i].index);
    EXPECT_EQ(a[i].global_size, b[i].global_size);
    EXPECT_EQ(a[i].inputs.shape(), b[i].inputs.shape());
    EXPECT_EQ(a[i].inputs.to_vector<std::uint8_t>(), b[i].inputs.to_vector<std::uint8_t>());
    EXPECT_EQ(a[i].targets.to_vector<std::int32_t>(), b[i].targets.to_vector<std::int32_t>());
  }
}

TEST(Loader, TheOrderIsThePermutationOfSeedAndEpoch) {
  Loader loader(samples(103), {.batch_size = 10, .seed = 7});
  for (const std::int64_t epoch : {0, 5}) {
    const auto order = Philox(7, fmt::format("order/epoch {}", epoch)).permutation(103);
    EXPECT_EQ(numbers(epoch_of(loader, epoch)), std::vector<std::int32_t>(order.begin(), order.end()));
  }
}

TEST(Loader, WithoutShuffleTheOrderAscendsAndImagesAreUnchanged) {
  const Dataset dataset = samples(25);
  Loader loader(dataset, {.batch_size = 10, .shuffle = false});
  const std::vector<Batch> batches = epoch_of(loader, 3);
  ASSERT_EQ(batches.size(), 3U);
  const std::vector<std::int32_t> order = numbers(batches);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  EXPECT_EQ(batches[1].inputs.to_vector<std::uint8_t>(), dataset.inputs.narrow(10, 10).to_vector<std::uint8_t>());
}

TEST(Loader, TheRaggedLastBatchIsKept) {
  Loader loader(samples(25), {.batch_size = 10});
  EXPECT_EQ(loader.batch_count(), 3);
  const std::vector<Batch> batches = epoch_of(loader, 0);
  ASSERT_EQ(batches.size(), 3U);
  EXPECT_EQ(batches[1].inputs.shape(), Shape({10, 3, kSide, kSide}));
  EXPECT_EQ(batches[2].inputs.shape(), Shape({5, 3, kSide, kSide}));
  EXPECT_EQ(batches[2].targets.shape(), Shape({5}));
  EXPECT_EQ(batches[2].global_size, 5);
  EXPECT_EQ(batches[2].index, 2);
  EXPECT_EQ(Loader(samples(20), {.batch_size = 10}).batch_count(), 2);
  EXPECT_EQ(Loader(samples(3), {.batch_size = 10}).batch_count(), 1);
}

TEST(Loader, LabelsAloneAreThoseOfTheWhole) {
  const LoaderSettings settings{.batch_size = 10, .seed = 1, .augment = true};
  Loader whole(samples(61), settings);
  LoaderSettings alone = settings;
  alone.inputs = false;
  Loader labels(samples(61), alone);
  const std::vector<Batch> expected = epoch_of(whole, 2);
  const std::vector<Batch> got = epoch_of(labels, 2);
  EXPECT_EQ(numbers(expected), numbers(got));
  EXPECT_EQ(got.back().inputs.shape(), (Shape{1, 0}));
}

// Sizes that do not divide each other, and more shards than samples in the last batch.
TEST(Loader, ShardsTogetherAreTheWhole) {
  for (const int shards : {1, 2, 3, 4, 7, 13}) {
    Loader whole(samples(61), {.batch_size = 10, .seed = 1, .augment = true});
    const std::vector<Batch> expected = epoch_of(whole, 2);
    std::vector<std::vector<std::uint8_t>> images(expected.size());
    std::vector<std::vector<std::int32_t>> labels(expected.size());
    for (int shard = 0; shard < shards; ++shard) {
      Loader part(samples(61),
                  {.batch_size = 10, .seed = 1, .augment = true, .shard = shard, .shards = shards, .prefetch = false});
      ASSERT_EQ(part.batch_count(), whole.batch_count());
      for (const Batch& batch : epoch_of(part, 2)) {
        const auto i = static_cast<std::size_t>(batch.index);
        const std::int64_t n = expected[i].global_size;
        EXPECT_EQ(batch.global_size, n);
        EXPECT_EQ(batch.targets.size(0), n / shards + (shard < n % shards ? 1 : 0));
        EXPECT_EQ(batch.inputs.size(0), batch.targets.size(0));
        const auto pixels = batch.inputs.to_vector<std::uint8_t>();
        const auto own = batch.targets.to_vector<std::int32_t>();
        images[i].insert(images[i].end(), pixels.begin(), pixels.end());
        labels[i].insert(labels[i].end(), own.begin(), own.end());
      }
    }
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(images[i], expected[i].inputs.to_vector<std::uint8_t>()) << shards << " shards, batch " << i;
      EXPECT_EQ(labels[i], expected[i].targets.to_vector<std::int32_t>()) << shards << " shards, batch " << i;
    }
  }
}

TEST(Loader, AnEpochResumedInTheMiddleEndsTheSame) {
  const LoaderSettings settings{.batch_size = 10, .augment = true};
  Loader loader(samples(45), settings);
  const std::vector<Batch> full = epoch_of(loader, 4);
  for (std::int64_t first = 0; first <= 5; ++first) {
    Loader resumed(samples(45), settings);
    expect_equal(epoch_of(resumed, 4, first), {full.begin() + first, full.end()});
  }
}

TEST(Loader, PrefetchingChangesNothing) {
  for (const bool augment : {false, true}) {
    LoaderSettings settings{.batch_size = 7, .seed = 9, .augment = augment, .image_size = 12};
    Loader with(samples(50), settings);
    settings.prefetch = false;
    Loader without(samples(50), settings);
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      expect_equal(epoch_of(with, epoch), epoch_of(without, epoch));
    }
  }
}

TEST(Loader, AugmentationDependsOnSampleAndEpochAlone) {
  // By batch size 1 and 50 the samples have other indices.
  const auto images = [](std::int64_t batch_size, std::int64_t epoch, bool shuffle) {
    Loader loader(samples(50), {.batch_size = batch_size, .seed = 2, .shuffle = shuffle, .augment = true});
    std::vector<std::vector<std::uint8_t>> by_sample(50);
    for (const Batch& batch : epoch_of(loader, epoch)) {
      for (std::int64_t i = 0; i < batch.targets.size(0); ++i) {
        by_sample[static_cast<std::size_t>(batch.targets.data<std::int32_t>()[i])] =
            batch.inputs.narrow(i, 1).to_vector<std::uint8_t>();
      }
    }
    return by_sample;
  };
  const auto reference = images(50, 1, true);
  EXPECT_EQ(images(1, 1, true), reference);
  EXPECT_EQ(images(8, 1, false), reference);
  EXPECT_NE(images(50, 2, true), reference);
  std::int64_t unchanged = 0;
  const std::vector<std::uint8_t> stored = samples(50).inputs.to_vector<std::uint8_t>();
  for (std::size_t i = 0; i < 50; ++i) {
    unchanged += std::equal(reference[i].begin(), reference[i].end(), stored.begin() + static_cast<long>(i) * kPixels);
  }
  EXPECT_LT(unchanged, 5) << "one in 162 stays as it was";
}

TEST(Loader, ImagesAreResizedAfterAugmentation) {
  const Dataset dataset = samples(3);
  Loader plain(dataset, {.batch_size = 3, .augment = true});
  Loader resized(dataset, {.batch_size = 3, .augment = true, .image_size = 11});
  const Batch small = epoch_of(plain, 0).front();
  const Batch large = epoch_of(resized, 0).front();
  ASSERT_EQ(large.inputs.shape(), Shape({3, 3, 11, 11}));
  std::vector<std::uint8_t> expected(3 * 3 * 11 * 11);
  for (std::int64_t i = 0; i < 3; ++i) {
    resize_image(small.inputs.data<std::uint8_t>() + i * kPixels, {kSide, kSide}, expected.data() + i * 3 * 121,
                 {11, 11});
  }
  EXPECT_EQ(large.inputs.to_vector<std::uint8_t>(), expected);
  Loader same(dataset, {.batch_size = 3, .image_size = kSide});
  EXPECT_EQ(epoch_of(same, 0).front().inputs.shape(), Shape({3, 3, kSide, kSide}));
}

TEST(Loader, AnEpochMayBeLeftAtAnyTime) {
  for (int taken = 0; taken < 6; ++taken) {
    Loader loader(samples(45), {.batch_size = 10});
    loader.start_epoch(0);
    for (int i = 0; i < taken; ++i) {
      loader.next();
    }
    if (taken % 2 == 0) {
      EXPECT_EQ(epoch_of(loader, 1).size(), 5U);
      loader.start_epoch(2);
    }
  }
}

TEST(Loader, ItMovesWithItsEpoch) {
  Loader first(samples(45), {.batch_size = 10});
  const auto order = numbers(epoch_of(first, 0));
  first.start_epoch(0);
  auto start = numbers({*first.next()});
  Loader second(std::move(first));
  Loader third(samples(5), {});
  third.start_epoch(0);
  third = std::move(second);
  const auto rest = numbers(take_all(third));
  start.insert(start.end(), rest.begin(), rest.end());
  EXPECT_EQ(start, order);
}

TEST(Loader, TheDatasetIsNotCopied) {
  const Dataset dataset = samples(20000);  // 3.8 MB
  const std::size_t before = allocator({}).stats().current_bytes;
  Loader loader(dataset, {.batch_size = 10});
  loader.start_epoch(0);
  loader.next();
  EXPECT_LT(allocator({}).stats().current_bytes - before, 100'000U);
}

TEST(Loader, WhatCannotBeFollowedIsRefused) {
  const auto expect_refused = [](const Dataset& dataset, const LoaderSettings& settings, const std::string& part) {
    expect_error<UsageError>([&] { Loader(dataset, settings); }, {part});
  };
  expect_refused(samples(5), {.batch_size = 0}, "batch size of at least 1, got 0");
  expect_refused(samples(5), {.batch_size = -3}, "got -3");
  expect_refused(samples(5), {.shard = 2, .shards = 2}, "got shard 2 of 2");
  expect_refused(samples(5), {.shard = -1, .shards = 2}, "got shard -1 of 2");
  expect_refused(samples(5), {.shards = 0}, "got shard 0 of 0");
  expect_refused(samples(5), {.image_size = -1}, "got -1");
  expect_refused(samples(5), {.image_size = 100000}, "got 100000");
  expect_refused(samples(0), {}, "got an empty dataset");
  expect_refused({}, {}, "got an empty dataset");
  const auto tokens = Tensor::zeros({5, 4}, DType::int32);
  expect_refused({tokens, tokens}, {.augment = true}, "expected samples uint8[3, H, W], got int32[4]");
  expect_refused({tokens, tokens}, {.image_size = 8}, "leave out both");
  expect_refused(samples(5), {.inputs = false, .transform = [](Tensor&, Tensor&, const SampleRandom&) {}},
                 "transform needs the inputs");
  Dataset mixed = samples(5);
  mixed.targets = samples(4).targets;
  expect_error<Error>([&] { Loader(mixed, {}); }, {"uint8[5, 3, 8, 8]", "int32[4]"});

  Loader loader(samples(5), {.batch_size = 2});
  expect_error<Error>([&] { loader.next(); }, {"before start_epoch"});
  expect_error<UsageError>([&] { loader.start_epoch(1, 4); }, {"epoch 1", "batch 4", "it has 3"});
  expect_error<UsageError>([&] { loader.start_epoch(1, -1); }, {"batch -1"});
}

template <class T>
void append(std::vector<T>& all, const Tensor& more) {
  const std::vector<T> values = more.to_vector<T>();
  all.insert(all.end(), values.begin(), values.end());
}

TEST(Loader, TokensAndVectorsKeepTheirShapesAndTypes) {
  const Tensor tokens = Tensor::from(std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {5, 2});
  Loader text({tokens, tokens}, {.batch_size = 3, .shuffle = false});
  const std::vector<Batch> batches = epoch_of(text, 0);
  ASSERT_EQ(batches.size(), 2U);
  EXPECT_EQ(batches[1].inputs.shape(), (Shape{2, 2}));
  EXPECT_EQ(batches[1].inputs.to_vector<std::int32_t>(), (std::vector<std::int32_t>{6, 7, 8, 9}));
  EXPECT_TRUE(batches[1].targets.to_vector<std::int32_t>() == batches[1].inputs.to_vector<std::int32_t>());
  EXPECT_TRUE(model_input(batches[1].inputs).is_same(batches[1].inputs)) << "only images become floats";

  const Dataset vectors{Tensor::full({5, 7}, 0.5), Tensor::full({5, 2}, 0.25)};
  Loader floats(vectors, {.batch_size = 4});
  const Batch batch = epoch_of(floats, 0).front();
  EXPECT_EQ(batch.inputs.to_vector<float>(), std::vector<float>(4 * 7, 0.5F));
  EXPECT_EQ(batch.targets.to_vector<float>(), std::vector<float>(4 * 2, 0.25F));
}

/// Numbers i and i + 1, of which a model should learn the sum.
class Sums : public SampleSource {
 public:
  std::int64_t size() const override { return 23; }
  SampleType input() const override { return {{2}, DType::float32}; }
  SampleType target() const override { return {{1}, DType::float32}; }
  void read(std::int64_t index, Tensor& input, Tensor& target) const override {
    const auto i = static_cast<float>(index);
    if (input.defined()) {
      input.copy_from(Tensor::from(std::vector<float>{i, i + 1}, {2}));
    }
    target.fill(2 * i + 1);
  }
};

void add_noise(Tensor& input, Tensor& /*target*/, const SampleRandom& random) {
  auto* values = input.mutable_data<float>();
  values[0] += static_cast<float>(random.uniform(0)) / 4;
  values[1] += static_cast<float>(random.uniform(6)) / 4;
}

// Two shards of an own source with a transform, resumed in the middle of an epoch, are the whole.
TEST(Loader, ASourceOfOnesOwnIsShardedAndResumed) {
  const auto source = std::make_shared<Sums>();
  Loader whole(source, {.batch_size = 5, .seed = 4, .transform = add_noise});
  const std::vector<Batch> expected = epoch_of(whole, 3, 2);
  ASSERT_EQ(expected.size(), 3U);
  std::vector<std::vector<float>> inputs(3);
  std::vector<std::vector<float>> targets(3);
  for (const int shard : {0, 1}) {
    Loader part(source, {.batch_size = 5, .seed = 4, .shard = shard, .shards = 2, .transform = add_noise});
    for (const Batch& batch : epoch_of(part, 3, 2)) {
      append(inputs[static_cast<std::size_t>(batch.index - 2)], batch.inputs);
      append(targets[static_cast<std::size_t>(batch.index - 2)], batch.targets);
    }
  }
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(inputs[i], expected[i].inputs.to_vector<float>());
    EXPECT_EQ(targets[i], expected[i].targets.to_vector<float>());
    for (std::size_t k = 0; k < targets[i].size(); ++k) {  // of the same samples, with noise below 1/4 on each
      const float noise = inputs[i][2 * k] + inputs[i][2 * k + 1] - targets[i][k];
      EXPECT_TRUE(noise > 0 && noise < 0.5F) << noise;
    }
  }
  EXPECT_NE(inputs[0], epoch_of(whole, 4, 2)[0].inputs.to_vector<float>());
  Loader labels(source, {.batch_size = 5, .seed = 4, .inputs = false});
  EXPECT_EQ(epoch_of(labels, 3, 2)[0].targets.to_vector<float>(), targets[0]);
}

TEST(Loader, AnErrorOfASourceReachesTheCaller) {
  class Broken : public Sums {
    void read(std::int64_t /*index*/, Tensor& /*input*/, Tensor& /*target*/) const override {
      throw DataError("disk on fire");
    }
  };
  for (const bool prefetch : {false, true}) {
    Loader loader(std::make_shared<Broken>(), {.prefetch = prefetch});
    loader.start_epoch(0);
    expect_error<DataError>([&] { loader.next(); }, {"disk on fire"});
  }
}

}  // namespace
}  // namespace stagecoach
