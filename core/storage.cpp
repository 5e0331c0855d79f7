#include "core/storage.h"

#include "core/allocator.h"

namespace stagecoach {

Storage::Storage(std::size_t bytes, Device device)
    : data_(allocator(device).allocate(bytes)), bytes_(bytes), device_(device) {}

Storage::~Storage() { allocator(device_).release(data_); }

}  // namespace stagecoach
