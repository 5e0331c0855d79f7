#include "core/device_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/text_file.h"
#include "core/base/throw_if.h"

namespace stagecoach {
namespace {

constexpr double kPicosecondsPerSecond = 1e12;
constexpr double kMaxPicoseconds = 1e18;

// ---- The rows. None is edited once it is released. Wide convolutions had no rate of their own when these were fitted.

/// 2026-11-27, NVIDIA H200, this project's kernels: fitted to docs/measurements/gpu_check.md of that day (commit
/// 33e28a80) by
///
///     calibrate h200.json --times docs/measurements/gpu_check.md --like h200
///
/// and for the second row with --tf32. Float64 has half the rates of float32, as data sheets say: it was not measured.
/// The host launches as chapter 1 did there without graphs: a step of convnet with batch 64 has 38 launches and took
/// 189 us (docs/measurements/cuda.md). The host prepares samples as the two-core machine of docs/measurements does.
DeviceModel h200() {
  return {.name = "h200",
          .backend = DeviceType::cuda,
          .float32 = {{{2.56e13, 9.37e7},
                       {2.24e13, 7.80e7},
                       {2.24e13, 7.80e7},
                       {2.33e13, 3.97e7},
                       {2.35e13, 1.13e7},
                       {2.33e13, 1.92e7}}},
          .float64 = {{{1.28e13, 4.68e7},
                       {1.12e13, 3.90e7},
                       {1.12e13, 3.90e7},
                       {1.17e13, 1.99e7},
                       {1.17e13, 5.64e6},
                       {1.17e13, 9.60e6}}},
          .bytes_per_second = 3.04e12,
          .launch_seconds = 1.28e-6,
          .host_launch_seconds = 5e-6,
          .host_bytes_per_second = 64e9,  // PCIe 5 with 16 lanes, by the data sheet
          .load_bytes_per_second = 1.42e10,
          .memory_bytes = 141'000'000'000,
          .copy_engines = 2};
}

DeviceModel h200_tf32() {
  DeviceModel model = h200();
  model.name = "h200-tf32";
  model.float32 = {{{1.89e14, 5.30e8},
                    {1.80e14, 3.11e8},
                    {1.80e14, 3.11e8},
                    {1.90e14, 3.24e8},
                    {2.35e13, 1.13e7},
                    {2.33e13, 1.92e7}}};
  return model;
}

/// What NVIDIA's data sheets say of a GPU.
struct DataSheet {
  double float32, float64, tf32;  ///< operations per second, without sparsity; tf32 is 0 where there is none
  double bytes_per_second;        ///< of its memory
  double host_bytes_per_second;   ///< in one direction
  std::int64_t memory_bytes;
};
constexpr DataSheet kH200{67e12, 34e12, 494.5e12, 4.8e12, 64e9, 141'000'000'000};    // SXM, 2024
constexpr DataSheet kH100{67e12, 34e12, 494.5e12, 3.35e12, 64e9, 80'000'000'000};    // SXM, 2023
constexpr DataSheet kA100{19.5e12, 9.7e12, 156e12, 2.039e12, 32e9, 80'000'000'000};  // 80 GB, SXM, 2022
constexpr DataSheet kV100{15.7e12, 7.8e12, 0, 0.9e12, 16e9, 32'000'000'000};         // SXM2, 2020
constexpr DataSheet kT4{8.1e12, 8.1e12 / 32, 0, 0.32e12, 16e9, 16'000'000'000};      // 2019; float64: Turing's paper

/// 2026-11-27: a row of the H200 in the proportions of data sheets. Nothing was measured on this GPU. What does not
/// scale are times: a kernel starts in the same time, and `half` takes the same time.
DeviceModel scaled(DeviceModel model, const std::string& name, const DataSheet& sheet, bool tf32) {
  model.name = name;
  for (std::size_t kind = 0; kind < model.float32.size(); ++kind) {
    const bool rounds = tf32 && is_product(static_cast<CostKind>(kind));
    const double of_float32 = rounds ? sheet.tf32 / kH200.tf32 : sheet.float32 / kH200.float32;
    for (const auto& [rate, factor] :
         {std::pair{&model.float32[kind], of_float32}, {&model.float64[kind], sheet.float64 / kH200.float64}}) {
      *rate = {rate->flops_per_second * factor, rate->half * factor};
    }
  }
  model.bytes_per_second *= sheet.bytes_per_second / kH200.bytes_per_second;
  model.host_bytes_per_second = sheet.host_bytes_per_second;
  model.memory_bytes = sheet.memory_bytes;
  return model;
}

/// 2026-11-27, one core of an AMD EPYC (family 26) at 2.6 GHz with the kernels for AVX2, by
///
///     calibrate laptop.json        built with -DSTAGECOACH_ARCH=x86-64-v3
///
/// Its bandwidth is that of caches, in which small models have their tensors. The memory is a usual size.
DeviceModel laptop() {
  return {.name = "laptop",
          .backend = DeviceType::cpu,
          .float32 = {{{1.05e11, 4.70e4},
                       {9.10e10, 4.55e4},
                       {9.10e10, 4.55e4},
                       {5.97e10, 2.56e4},
                       {4e10, 6.13e3},
                       {3.76e10, 3.68e4}}},
          .float64 = {{{4.95e10, 2.23e4},
                       {4.31e10, 2.15e4},
                       {4.31e10, 2.15e4},
                       {2.82e10, 1.21e4},
                       {1.89e10, 2.90e3},
                       {1.78e10, 1.74e4}}},
          .bytes_per_second = 9.71e10,
          .launch_seconds = 5.08e-7,
          .host_launch_seconds = 0,
          .host_bytes_per_second = 2.15e10,
          .load_bytes_per_second = 1.42e10,
          .memory_bytes = 16'000'000'000,
          .copy_engines = 0};
}

const std::vector<DeviceModel>& rows() {
  static const std::vector<DeviceModel> all{
      h200(),
      h200_tf32(),
      scaled(h200(), "h100", kH100, false),
      scaled(h200_tf32(), "h100-tf32", kH100, true),
      scaled(h200(), "a100", kA100, false),
      scaled(h200_tf32(), "a100-tf32", kA100, true),
      scaled(h200(), "v100", kV100, false),
      scaled(h200(), "t4", kT4, false),
      laptop(),
  };
  return all;
}

// ---- What they take

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
