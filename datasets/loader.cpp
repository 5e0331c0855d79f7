#include "datasets/loader.h"

#include <chrono>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/ops.h"
#include "datasets/batch_maker.h"
#include "datasets/prefetcher.h"

namespace stagecoach {

/// The current epoch.
struct Loader::Epoch {
  std::int64_t number = 0;
  std::int64_t next_batch = 0;
  std::vector<std::uint32_t> order;
  std::optional<Prefetcher> prefetcher;  // last: its thread reads the order
};

Tensor model_input(const Tensor& inputs) {
  return inputs.dtype() == DType::uint8 && inputs.dims() == 4 ? normalize(inputs) : inputs;
}

Loader::Loader(std::shared_ptr<const SampleSource> samples, LoaderSettings settings) : prefetch_(settings.prefetch) {
  maker_ = std::make_unique<const BatchMaker>(std::move(samples), std::move(settings));
}

Loader::~Loader() = default;
Loader::Loader(Loader&& other) noexcept = default;

Loader& Loader::operator=(Loader&& other) noexcept {
  epoch_.reset();  // before the maker that it uses is destroyed
  maker_ = std::move(other.maker_);
  prefetch_ = other.prefetch_;
  device_ = other.device_;
  waited_ = other.waited_;
  epoch_ = std::move(other.epoch_);
  return *this;
}

Batch Loader::copy_to(Device device) const { return maker_->copy_to(device); }
bool Loader::is_on_device() const { return maker_->is_on_device(); }
std::int64_t Loader::batch_count() const { return maker_->batch_count(); }

void Loader::start_epoch(std::int64_t epoch, std::int64_t first_batch) {
  if (first_batch < 0 || first_batch > batch_count()) {
    throw UsageError(
        fmt::format("loader: epoch {} cannot start at batch {}: it has {} batches; resume with the data and the batch "
                    "size of the earlier run",
                    epoch, first_batch, batch_count()));
  }
  epoch_.reset();  // ends the previous epoch's thread
  epoch_ = std::make_unique<Epoch>();
  epoch_->number = epoch;
  epoch_->next_batch = first_batch;
  epoch_->order = maker_->order(epoch);
  if (prefetch_) {
    epoch_->prefetcher.emplace(
        [maker = maker_.get(), state = epoch_.get(), device = device_](std::int64_t index) {
          return maker->make(state->order, state->number, index, device);
        },
        first_batch, batch_count());
  }
}

std::optional<Batch> Loader::next() {
  STAGECOACH_CHECK(epoch_ != nullptr, "loader: next() was called before start_epoch()");
  if (epoch_->prefetcher) {
    const auto start = std::chrono::steady_clock::now();
    std::optional<Batch> batch = epoch_->prefetcher->next();
    waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return batch;
  }
  if (epoch_->next_batch == batch_count()) {
    return std::nullopt;
  }
  return maker_->make(epoch_->order, epoch_->number, epoch_->next_batch++, device_);
}

}  // namespace stagecoach
