#include "datasets/batch_maker.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "core/base/memory_limits.h"
#include "core/base/throw_if.h"
#include "core/random.h"
#include "core/transfer.h"
#include "core/uncounted_memory.h"
#include "datasets/augment.h"
#include "datasets/shares.h"

namespace stagecoach {
namespace {

constexpr std::int64_t kMaxImageSize = 4096;
constexpr std::int64_t kChunkBytes = 16 << 20;  // that are copied to a device at once
const SampleType kCrop{{4}, DType::int32};      // see Kernels::gather

ImageSize size_of(const SampleType& image) { return {image.shape[1], image.shape[2]}; }

std::string describe(const SampleType& type) { return fmt::format("{}{}", name_of(type.dtype), to_string(type.shape)); }

/// Returns [rows, …].
Shape with_rows(std::int64_t rows, const Shape& shape) {
  std::array<std::int64_t, Shape::kMaxDims> extents{rows};
  std::copy(shape.begin(), shape.end(), extents.begin() + 1);
  return {extents.data(), shape.dims() + 1};
}

/// Returns an uninitialised tensor for `count` samples, from which `device` can copy.
Tensor make_part(std::int64_t count, const SampleType& type, Device device) {
  return staging_tensor(with_rows(count, type.shape), type.dtype, device);
}

/// Returns row `i` of a part of a batch.
Tensor row_of(const Tensor& part, std::int64_t i, const Shape& shape) {
  return part.alias(shape, part.offset() + i * shape.numel());
}

std::int64_t bytes_of(const SampleType& type) {
  return type.shape.numel() * static_cast<std::int64_t>(size_of(type.dtype));
}

}  // namespace

BatchMaker::BatchMaker(std::shared_ptr<const SampleSource> samples, LoaderSettings settings)
    : samples_(std::move(samples)), settings_(std::move(settings)), stored_(samples_->input()), made_(stored_) {
  check();
  if (!settings_.inputs) {
    made_.shape = {0};
  } else if (settings_.image_size > 0) {
    made_.shape = {3, settings_.image_size, settings_.image_size};
  }
}

void BatchMaker::check() const {
  throw_if<UsageError>(settings_.batch_size < 1, "loader: expected a batch size of at least 1, got {}",
                       settings_.batch_size);
  throw_if<UsageError>(settings_.shards < 1 || settings_.shard < 0 || settings_.shard >= settings_.shards,
                       "loader: expected a shard of at least 0 and less than the number of shards, got shard {} of {}",
                       settings_.shard, settings_.shards);
  throw_if<UsageError>(settings_.image_size < 0 || settings_.image_size > kMaxImageSize,
                       "loader: expected an image size of 0 (as stored) or from 1 to {} pixels, got {}", kMaxImageSize,
                       settings_.image_size);
  throw_if<UsageError>(samples_->size() < 1, "loader: expected at least one sample, got an empty source");
  throw_if<UsageError>(samples_->size() > std::numeric_limits<std::int32_t>::max(),
                       "loader: expected at most 2^31 - 1 samples, got {}", samples_->size());
  const bool are_images = stored_.dtype == DType::uint8 && stored_.shape.dims() == 3 && stored_.shape[0] == 3;
  throw_if<UsageError>((settings_.augment || settings_.image_size > 0) && !are_images,
                       "loader: augment and image_size are for images: expected samples uint8[3, H, W], got {}; leave "
                       "out both",
                       describe(stored_));
  throw_if<UsageError>(settings_.transform && !settings_.inputs,
                       "loader: a transform needs the inputs; leave out inputs = false");
  throw_if<UsageError>(settings_.on_device && settings_.transform,
                       "loader: with `on_device` expected no transform, which runs on the host; leave out one of them");
  const Shape resized{3, settings_.image_size, settings_.image_size};
  const bool resizes = settings_.image_size > 0 && stored_.shape != resized;
  if (settings_.on_device && settings_.augment && resizes) {
    throw UsageError(
        fmt::format("loader: with `on_device` and augmentation expected images of {0} x {0} pixels, got {1} x {2}, "
                    "which are resized "
                    "after they are augmented; leave out `on_device`, or store them in that size",
                    settings_.image_size, stored_.shape[1], stored_.shape[2]));
  }
}

std::int64_t BatchMaker::batch_count() const { return (samples_->size() - 1) / settings_.batch_size + 1; }

std::vector<std::uint32_t> BatchMaker::order(std::int64_t epoch) const {
  const auto size = static_cast<std::uint32_t>(samples_->size());
  if (settings_.shuffle) {
    return Philox(settings_.seed, fmt::format("order/epoch {}", epoch)).permutation(size);
  }
  std::vector<std::uint32_t> ascending(size);
  std::iota(ascending.begin(), ascending.end(), 0U);
  return ascending;
}

Batch BatchMaker::make(const std::vector<std::uint32_t>& order, std::int64_t epoch, std::int64_t index,
                       Device device) const {
  const std::int64_t start = index * settings_.batch_size;
  const std::int64_t global = std::min(settings_.batch_size, samples_->size() - start);
  const auto [first, count] = share_of(global, settings_.shard, settings_.shards);
  const SampleType input = settings_.on_device && settings_.inputs ? kCrop : made_;
  const SampleType target = settings_.on_device ? kCrop : samples_->target();
  Batch batch{make_part(count, input, device), make_part(count, target, device), index, global};
  // Keyed by the sample, not by its position in the batch, so that a sample is changed in the same way however the data
  // are sharded.
  const Philox random(settings_.seed, fmt::format("augment/epoch {}", epoch));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t sample = order[static_cast<std::size_t>(start + first + i)];
    settings_.on_device ? put_crop(sample, {random, sample}, batch, i) : put_sample(sample, {random, sample}, batch, i);
  }
  return batch;
}

void BatchMaker::put_sample(std::int64_t sample, const SampleRandom& random, Batch& batch, std::int64_t row) const {
  Tensor input = settings_.inputs ? row_of(batch.inputs, row, made_.shape) : Tensor();
  Tensor target = row_of(batch.targets, row, samples_->target().shape);
  if (settings_.inputs && (settings_.augment || stored_ != made_)) {
    read_image(sample, random, input, target);
  } else {
    samples_->read(sample, input, target);
  }
  if (settings_.transform) {
    settings_.transform(input, target, random);
  }
}

void BatchMaker::put_crop(std::int64_t sample, const SampleRandom& random, Batch& batch, std::int64_t row) const {
  const auto index = static_cast<std::int32_t>(sample);
  const auto put = [row](Tensor& crops, const std::array<std::int32_t, 4>& crop) {
    std::copy(crop.begin(), crop.end(), crops.mutable_data<std::int32_t>() + 4 * row);
  };
  put(batch.targets, {index, 0, 0, 0});
  if (settings_.inputs) {
    const Crop crop = settings_.augment ? crop_of(size_of(stored_), random.block()) : Crop{};
    put(batch.inputs,
        {index, static_cast<std::int32_t>(crop.down), static_cast<std::int32_t>(crop.right), crop.mirrored ? 1 : 0});
  }
}

Batch BatchMaker::copy_to(Device device) const {
  const bool is_cpu = device.type == DeviceType::cpu;
  const std::int64_t bytes = bytes_of(samples_->target()) + (settings_.inputs ? bytes_of(made_) : 0);
  if (is_cpu) {
    require_memory_for("the data set on the device", static_cast<std::uint64_t>(samples_->size() * bytes));
  }
  const auto all_of = [&](const SampleType& type) {
    return Tensor::empty(with_rows(samples_->size(), type.shape), type.dtype, device);
  };
  Batch all{settings_.inputs ? all_of(made_) : Tensor(), all_of(samples_->target()), 0, samples_->size()};
  LoaderSettings plain = settings_;
  plain.augment = false;
  const BatchMaker maker(samples_, plain);
  const std::int64_t chunk = std::max<std::int64_t>(1, kChunkBytes / std::max<std::int64_t>(1, bytes));
  const Philox unused(0);
  for (std::int64_t start = 0; start < samples_->size(); start += chunk) {
    const std::int64_t count = std::min(chunk, samples_->size() - start);
    Batch part{settings_.inputs ? all.inputs.narrow(start, count) : Tensor(), all.targets.narrow(start, count), 0, 0};
    Batch here =
        is_cpu ? part : Batch{make_part(count, made_, device), make_part(count, samples_->target(), device), 0, 0};
    for (std::int64_t i = 0; i < count; ++i) {
      maker.put_sample(start + i, {unused, start + i}, here, i);
    }
    if (!is_cpu) {
      part.targets.copy_from(here.targets);
      if (settings_.inputs) {
        part.inputs.copy_from(here.inputs);
      }
    }
  }
  return all;
}

void BatchMaker::read_image(std::int64_t sample, const SampleRandom& random, Tensor& input, Tensor& target) const {
  const UncountedMemory scratch;  // of a host, not of the device that trains
  Tensor image = Tensor::empty(stored_.shape, DType::uint8);
  samples_->read(sample, image, target);
  if (settings_.augment) {
    Tensor augmented = stored_ == made_ ? input : Tensor::empty(stored_.shape, DType::uint8);
    augment_image(image.data<std::uint8_t>(), augmented.mutable_data<std::uint8_t>(), size_of(stored_), random.block());
    image = augmented;
  }
  if (stored_ != made_) {
    resize_image(image.data<std::uint8_t>(), size_of(stored_), input.mutable_data<std::uint8_t>(), size_of(made_));
  }
}

}  // namespace stagecoach
