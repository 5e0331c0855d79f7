#pragma once
/// @file
/// The memory behind tensors.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/device.h"

namespace stagecoach {

/// A block of a device's memory, shared by a tensor and its views, and freed with the last of them.
/// The version counts the writes: autograd uses it to refuse a backward through values that are gone.
class Storage {
 public:
  Storage(std::size_t bytes, Device device);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  std::uint64_t version() const { return version_; }
  void bump_version() { ++version_; }

 private:
  void* data_;
  std::size_t bytes_;
  Device device_;
  std::uint64_t version_ = 0;
};

}  // namespace stagecoach
