#include "core/device.h"

#include "core/base/error.h"
#include "core/base/parse.h"
#include "core/base/throw_if.h"
#include "core/cuda_backend.h"

namespace stagecoach {

std::string to_string(Device device) {
  const char* const types[] = {"cpu:", "cuda:", "meta:"};
  const std::string name = types[static_cast<std::size_t>(device.type)] + std::to_string(device.index);
  return device.slot == 0 ? name : name + "/" + std::to_string(device.slot);
}

Device parse_device(std::string_view text) {
  const auto colon = text.find(':');
  const std::string_view type = text.substr(0, colon);
  Device device;
  device.type = type == "cuda" ? DeviceType::cuda : DeviceType::cpu;
  bool good = type == "cpu" || type == "cuda";
  if (colon != std::string_view::npos) {
    const std::string_view digits = text.substr(colon + 1);
    device.index = number_from<int>(digits).value_or(-1);
    good = good && device.index >= 0 && digits.front() != '-';
  }
  throw_if<UsageError>(!good || device.index >= kMaxDevices,
                       "unknown device '{}': expected cpu, cuda, or either with an index below {}, such as cuda:1",
                       text, kMaxDevices);
  return device;
}

void require_device(Device device) {
  const int logical = device.type == DeviceType::cpu ? device.index : device.slot;
  if (logical < 0 || logical >= kMaxDevices || (device.type == DeviceType::cpu && device.slot != 0)) {
    throw UsageError(fmt::format("{} does not exist: expected {} from 0 to {}", to_string(device),
                                 device.type == DeviceType::cpu ? "an index" : "a slot", kMaxDevices - 1));
  }
  if (device.type == DeviceType::cuda) {
    cuda::require_device(device);
  }
}

}  // namespace stagecoach
