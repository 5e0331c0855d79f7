#include "core/storage.h"

#include <exception>
#include <utility>

#include "core/allocator.h"
#include "core/base/error.h"

namespace stagecoach {

Block::Block(std::shared_ptr<Allocator> memory, std::size_t bytes)
    : allocator(std::move(memory)), data(allocator->allocate(bytes)) {}

Block::~Block() {
  if (!is_abandoned) {
    allocator->release(data);
  }
}

Storage::Storage(std::size_t bytes, Device device) : Storage(bytes, device, allocator_for_tensors(device)) {}

Storage::Storage(std::size_t bytes, Device device, std::shared_ptr<Allocator> memory)
    : block_(std::make_shared<Block>(std::move(memory), bytes)), bytes_(bytes), device_(device) {}

Storage::Storage(std::shared_ptr<Storage> owner, Device device)
    : owner_(std::move(owner)), block_(owner_->block_), bytes_(owner_->bytes_), device_(device) {}

Storage::Storage(std::shared_ptr<Block> block, std::size_t bytes, Device device)
    : block_(std::move(block)), bytes_(bytes), device_(device) {}

void Storage::note_use(const Event& done) {
  const std::lock_guard lock(mutex_);
  // A use on the same stream was earlier, so waiting for `done` includes it.
  std::erase_if(other_uses_, [&](const Event& use) { return use.stream() == done.stream(); });
  other_uses_.push_back(done);
}

void Storage::drop_memory() {
  wait_for_other_uses();
  other_uses_.clear();
  block_ = nullptr;
}

void Storage::take_memory(const Storage& source) {
  STAGECOACH_CHECK(source.bytes_ == bytes_ && source.device_ == device_ && owner_ == nullptr,
                   "storage: expected memory of {} bytes on {}, got {} bytes on {}", bytes_, to_string(device_),
                   source.bytes_, to_string(source.device_));
  block_ = source.block();
}

void Storage::fail_without_memory() {
  fail(
      "storage: its memory is dropped; use the tensor only while its memory is there (weights that are cut over ranks "
      "have memory from the forward of their unit until they are freed)");
}

void Storage::wait_for_other_uses() {
  const Stream compute{device_, Stream::kCompute};
  if (device_.type == DeviceType::cuda && owner_ != nullptr && owner_->device_ != device_) {
    Event done;
    done.record(compute);
    note_use(done);
  }
  for (const Event& use : other_uses_) {
    if (owner_ != nullptr) {
      owner_->note_use(use);
    } else {
      use.wait(compute);  // the next owner's work comes later on that stream
    }
  }
}

Storage::~Storage() {
  try {
    wait_for_other_uses();
  } catch (const std::exception&) {  // the device has failed, as the next call will report
    if (block_ != nullptr) {
      block_->is_abandoned = true;
    }
  }
}

}  // namespace stagecoach
