#include "core/storage.h"

#include <exception>
#include <utility>

#include "core/allocator.h"

namespace stagecoach {

Storage::Storage(std::size_t bytes, Device device) : Storage(bytes, device, allocator_for_tensors(device)) {}

Storage::Storage(std::size_t bytes, Device device, std::shared_ptr<Allocator> memory)
    : memory_(std::move(memory)), data_(memory_->allocate(bytes)), bytes_(bytes), device_(device) {}

Storage::Storage(std::shared_ptr<Storage> owner, Device device)
    : owner_(std::move(owner)), data_(owner_->data_), bytes_(owner_->bytes_), device_(device) {}

void Storage::note_use(const Stream& stream) {
  other_use_.emplace();
  other_use_->record(stream);
}

Storage::~Storage() {
  if (other_use_) {
    try {
      other_use_->wait({device_, Stream::kCompute});  // the next owner's work comes later on that stream
    } catch (const std::exception&) {
      std::terminate();  // nobody could say any more who uses the memory
    }
  }
  if (memory_ != nullptr) {
    memory_->release(data_);
  }
}

}  // namespace stagecoach
