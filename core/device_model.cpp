#include "core/device_model.h"

#include <algorithm>
#include <cmath>

#include "core/base/text_file.h"
#include "core/base/throw_if.h"

namespace stagecoach {
namespace {

constexpr double kPicosecondsPerSecond = 1e12;
constexpr double kMaxPicoseconds = 1e18;
constexpr std::int64_t kGiB = std::int64_t{1} << 30;

// Rates are in the order of CostKind: matrix product, convolution, attention, elementwise, reduction.
const std::vector<DeviceModel>& rows() {
  static const std::vector<DeviceModel> all{
      {.name = "h200",
       .backend = DeviceType::cuda,
       .float32 = {{{35e12, 100e6}, {28e12, 200e6}, {70e12, 100e6}, {20e12, 0}, {20e12, 0}}},
       .float64 = {{{2e12, 100e6}, {2e12, 200e6}, {2e12, 100e6}, {10e12, 0}, {10e12, 0}}},
       .bytes_per_second = 4.0e12,
       .launch_seconds = 1.3e-6,
       .host_launch_seconds = 5e-6,
       .host_bytes_per_second = 25e9,
       .load_bytes_per_second = 10e9,
       .memory_bytes = 141 * 1000 * std::int64_t{1000 * 1000},
       .copy_engines = 2},
      {.name = "laptop",
       .backend = DeviceType::cpu,
       .float32 = {{{80e9, 10e3}, {70e9, 100e3}, {30e9, 10e3}, {10e9, 0}, {5e9, 0}}},
       .float64 = {{{40e9, 10e3}, {35e9, 100e3}, {15e9, 10e3}, {5e9, 0}, {2.5e9, 0}}},
       .bytes_per_second = 12e9,
       .launch_seconds = 0.5e-6,
       .host_launch_seconds = 0,
       .host_bytes_per_second = 12e9,
       .load_bytes_per_second = 1e9,
       .memory_bytes = 16 * kGiB,
       .copy_engines = 0},
  };
  return all;
}

/// Returns `seconds` in picoseconds, rounded once. No sum follows a product, so no compiler can fuse the two.
std::int64_t rounded(double seconds) {
  return std::llround(std::min(seconds * kPicosecondsPerSecond, kMaxPicoseconds));
}

}  // namespace

std::int64_t DeviceModel::picoseconds(const KernelCost& cost) const {
  const BackendCost& on_backend = cost.on(backend);
  double seconds = static_cast<double>(cost.bytes() + 2 * on_backend.workspace_bytes) / bytes_per_second;
  if (cost.flops > 0 && cost.kind != CostKind::copy) {
    const Rates& rates = cost.dtype == DType::float64 ? float64 : float32;
    const Rate& rate = rates[static_cast<std::size_t>(cost.kind)];
    seconds = std::max(seconds,
                       (static_cast<double>(cost.flops + on_backend.idle_flops) + rate.half) / rate.flops_per_second);
  }
  return on_backend.launches * rounded(launch_seconds) + rounded(seconds);
}

DeviceModel device_model(const std::string& name_or_file) {
  for (const DeviceModel& row : rows()) {
    if (row.name == name_or_file) {
      return row;
    }
  }
  throw_if<UsageError>(!name_or_file.ends_with(".json"),
                       "device model '{}': expected {} or a file that ends with .json", name_or_file,
                       fmt::join(device_model_names(), ", "));
  const std::string advice = "give the file of a device model";
  return device_model_from_json(read_text(name_or_file, advice), name_or_file);
}

const std::vector<std::string>& device_model_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const DeviceModel& row : rows()) {
      all.push_back(row.name);
    }
    return all;
  }();
  return names;
}

}  // namespace stagecoach
