#pragma once
/// @file
/// Which devices tests run on: the CPU always, a GPU where there is one, and logical CPU devices of a test's own.

#include <atomic>
#include <iterator>
#include <ostream>
#include <string>
#include <type_traits>
#include <vector>

#include "core/base/error.h"
#include "core/device.h"

namespace stagecoach {

/// For gtest, which would show the bytes in the names of tests.
inline void PrintTo(Device device, std::ostream* out) { *out << to_string(device); }

namespace test {

/// The GPU that tests use.
inline constexpr Device kCuda{DeviceType::cuda, 0};

/// Why there is no GPU to test on, in the words of the error; empty when there is one. A GPU that fails in any other
/// way is an error of the test program.
inline const std::string& why_no_cuda() {
  static const std::string why = []() -> std::string {
    try {
      require_device(kCuda);
      return {};
    } catch (const UsageError& error) {
      return error.what();
    }
  }();
  return why;
}

inline bool has_cuda() { return why_no_cuda().empty(); }

/// What test bodies for any device run on. Without a GPU their CUDA half does not exist.
inline const std::vector<Device>& devices() {
  static const std::vector<Device> all = has_cuda() ? std::vector<Device>{{}, kCuda} : std::vector<Device>{{}};
  return all;
}

/// "cpu" or "cuda", for names of tests: support/main.cpp counts those in which a part begins with "cuda".
inline std::string name_of(Device device) { return device.type == DeviceType::cpu ? "cpu" : "cuda"; }

/// The same for a test whose parameter is a device: `info` is gtest's TestParamInfo.
inline constexpr auto device_name = [](const auto& info) { return name_of(info.param); };

/// A test's parameter that is run on every device.
template <class Case>
struct On {
  Device device;
  Case what;
};

/// Without the case: the tests' names say which it is.
template <class Case>
void PrintTo(const On<Case>& on, std::ostream* out) {
  PrintTo(on.device, out);
}

/// Every case on every device.
template <class Cases>
auto on_devices(const Cases& cases) {
  std::vector<On<std::decay_t<decltype(*std::begin(cases))>>> all;
  for (const Device device : devices()) {
    for (const auto& each : cases) {
      all.push_back({device, each});
    }
  }
  return all;
}

/// A logical CPU device of a test's own, so that memory counts and thread counts of other tests do not show in it:
/// cpu:1, cpu:2, …; cpu:0 stays free for tensors that do not care.
inline Device fresh_device() {
  static std::atomic<int> used{0};
  return {DeviceType::cpu, 1 + used++ % (kMaxDevices - 1)};
}

/// Gives a device `count` threads until the end of the scope; idle workers of finished tests would cost time.
class ThreadsFor {
 public:
  ThreadsFor(Device device, int count) : device_(device) { set_threads(device, count); }
  ~ThreadsFor() { set_threads(device_, 1); }
  ThreadsFor(const ThreadsFor&) = delete;
  ThreadsFor& operator=(const ThreadsFor&) = delete;

 private:
  Device device_;
};

}  // namespace test
}  // namespace stagecoach
