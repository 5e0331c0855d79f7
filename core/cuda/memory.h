#pragma once
/// @file
/// The memory sources of the CUDA backend.

#include "core/allocator.h"
#include "core/cuda/check.h"

namespace stagecoach::cuda {

/// Memory of a GPU.
class DeviceMemory final : public MemorySource {
 public:
  explicit DeviceMemory(Device device) : device_(device) {}
  void* allocate(std::size_t bytes) override;
  void deallocate(void* memory) override;
  bool is_host_memory() const override;
  std::optional<std::size_t> free_bytes() const override;

 private:
  Device device_;
};

/// Page-locked memory of the CPU, which a GPU reads and writes directly.
class PinnedMemory final : public MemorySource {
 public:
  void* allocate(std::size_t bytes) override;
  void deallocate(void* memory) override;
};

/// Memory from another allocator: for a recording, whose memory belongs to the device in the end.
class MemoryOf final : public MemorySource {
 public:
  explicit MemoryOf(std::shared_ptr<Allocator> owner, bool is_host) : owner_(std::move(owner)), is_host_(is_host) {}
  void* allocate(std::size_t bytes) override { return owner_->allocate(bytes); }
  void deallocate(void* memory) override { owner_->release(memory); }
  bool is_host_memory() const override { return is_host_; }

 private:
  std::shared_ptr<Allocator> owner_;
  bool is_host_;
};

}  // namespace stagecoach::cuda
