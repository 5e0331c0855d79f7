#pragma once
/// @file
/// A logical device: where tensors are stored and operations run. Each rank owns one. Several logical devices may share
/// one real core, so `cpu:0` and `cpu:1` differ in their allocator and threads, not in hardware; and several may share
/// one GPU, each in a slot of its own.

#include <compare>
#include <string>
#include <string_view>

namespace stagecoach {

/// Tensors on `meta` have a shape and no elements: its operations compute nothing, and tell the thread's meter what
/// they would cost (core/kernel_meter.h). So a model can be planned that fits into no memory.
enum class DeviceType { cpu, cuda, meta };

struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;
  /// Ranks that share a GPU take different slots: each slot has its own streams and its own allocator. 0 on a CPU.
  int slot = 0;
  auto operator<=>(const Device&) const = default;
};

/// The number of logical CPU devices: cpu:0 to cpu:kMaxDevices-1. A GPU has the same number of slots.
inline constexpr int kMaxDevices = 128;

/// Returns "cpu:0", "cuda:1", "cuda:1/3" for slot 3 of that GPU, or "meta:0".
std::string to_string(Device device);

/// Parses "cpu", "cuda", "cpu:3" or "cuda:1". Throws UsageError for anything else.
Device parse_device(std::string_view text);

/// Throws UsageError with the reason if this build or this machine cannot run on `device`.
void require_device(Device device);

/// Returns how many threads operations on `device` may use (1 by default). Results do not depend on it.
int threads(Device device);
inline constexpr int kMaxThreads = 1024;
/// Sets the number of threads. Throws UsageError outside 1 … kMaxThreads. Must not be called while an operation runs on
/// the device.
void set_threads(Device device, int count);

}  // namespace stagecoach
