#include "datasets/batch_maker.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "core/random.h"
#include "core/transfer.h"
#include "datasets/augment.h"
#include "datasets/shares.h"

namespace stagecoach {
namespace {

constexpr std::int64_t kMaxImageSize = 4096;

}  // namespace

BatchMaker::BatchMaker(Dataset dataset, const LoaderSettings& settings)
    : dataset_(std::move(dataset)), settings_(settings) {
  check();
  stored_ = {dataset_.images.size(2), dataset_.images.size(3)};
  made_ = !settings_.images           ? ImageSize{0, 0}
          : settings_.image_size == 0 ? stored_
                                      : ImageSize{settings_.image_size, settings_.image_size};
}

void BatchMaker::check() const {
  if (settings_.batch_size < 1) {
    throw UsageError(fmt::format("loader: expected a batch size of at least 1, got {}", settings_.batch_size));
  }
  if (settings_.shards < 1 || settings_.shard < 0 || settings_.shard >= settings_.shards) {
    throw UsageError(
        fmt::format("loader: expected a shard of at least 0 and less than the number of shards, got shard {} of {}",
                    settings_.shard, settings_.shards));
  }
  if (settings_.image_size < 0 || settings_.image_size > kMaxImageSize) {
    throw UsageError(fmt::format("loader: expected an image size of 0 (as stored) or from 1 to {} pixels, got {}",
                                 kMaxImageSize, settings_.image_size));
  }
  if (dataset_.size() == 0) {
    throw UsageError("loader: expected at least one image, got an empty dataset");
  }
  const Tensor& images = dataset_.images;
  const Tensor& labels = dataset_.labels;
  STAGECOACH_CHECK(images.defined() && images.dtype() == DType::uint8 && images.dims() == 4 && images.size(1) == 3 &&
                       images.device().type == DeviceType::cpu && labels.dtype() == DType::int32 &&
                       labels.shape() == Shape{images.size(0)} && labels.device().type == DeviceType::cpu,
                   "loader: expected images uint8[N, 3, H, W] and labels int32[N] on a CPU, got {} and {}",
                   describe(images), describe(labels));
  STAGECOACH_CHECK(images.size(0) <= std::numeric_limits<std::int32_t>::max(),
                   "loader: expected at most 2^31 - 1 images, got {}", images.size(0));
}

std::int64_t BatchMaker::batch_count() const { return (dataset_.size() - 1) / settings_.batch_size + 1; }

std::vector<std::uint32_t> BatchMaker::order(std::int64_t epoch) const {
  const auto size = static_cast<std::uint32_t>(dataset_.size());
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
  const std::int64_t global = std::min(settings_.batch_size, dataset_.size() - start);
  const auto [first, count] = share_of(global, settings_.shard, settings_.shards);

  Batch batch{staging_tensor({count, 3, made_.height, made_.width}, DType::uint8, device),
              staging_tensor({count}, DType::int32, device), index, global};
  const std::int64_t stored_pixels = 3 * stored_.height * stored_.width;
  const std::int64_t made_pixels = 3 * made_.height * made_.width;
  const auto* from = dataset_.images.data<std::uint8_t>();         // [N, 3, H, W] as stored
  const auto* from_labels = dataset_.labels.data<std::int32_t>();  // [N]
  auto* to = batch.images.mutable_data<std::uint8_t>();            // [count, 3, H, W] as made
  auto* to_labels = batch.labels.mutable_data<std::int32_t>();     // [count]

  // Indexed by sample, not by position in the batch, so that a sample is augmented in the same way however the data is
  // sharded.
  const Philox random(settings_.seed, fmt::format("augment/epoch {}", epoch));
  std::vector<std::uint8_t> augmented(static_cast<std::size_t>(settings_.augment ? stored_pixels : 0));
  for (std::int64_t i = 0; i < count; ++i, to += made_pixels) {
    const std::uint32_t sample = order[static_cast<std::size_t>(start + first + i)];
    to_labels[i] = from_labels[sample];
    if (!settings_.images) {
      continue;
    }
    const std::uint8_t* image = from + sample * stored_pixels;
    if (settings_.augment) {
      augment_image(image, augmented.data(), stored_, random.block(sample));
      image = augmented.data();
    }
    if (stored_ != made_) {
      resize_image(image, stored_, to, made_);
    } else {
      std::memcpy(to, image, static_cast<std::size_t>(made_pixels));
    }
  }
  return batch;
}

}  // namespace stagecoach
