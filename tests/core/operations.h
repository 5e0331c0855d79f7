#pragma once
/// @file
/// What the tests of the operations' formulas share: every one runs on every device and in both types.

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "core/ops.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace stagecoach::test {

using Values = std::vector<double>;

class Operations : public ::testing::TestWithParam<std::tuple<Device, DType>> {
 protected:
  static Device device() { return std::get<0>(GetParam()); }
  static DType dtype() { return std::get<1>(GetParam()); }
  static Tensor random(const Shape& shape, const char* name) { return random_tensor(shape, name, dtype(), device()); }
  static Tensor typed(const Values& values, const Shape& shape) {
    return test::typed(values, shape, dtype(), device());
  }
  /// A few roundings.
  static ::testing::AssertionResult near(const Tensor& y, const Values& expected, const Shape& shape) {
    const double bound = dtype() == DType::float32 ? 2e-6 : 1e-14;
    if (y.dtype() != dtype() || y.device() != device()) {
      return ::testing::AssertionFailure() << describe(y);
    }
    return close(y, of(expected, shape), bound, bound);
  }
};

/// Parameters of Operations, and names such as "cuda_float64".
inline auto devices_and_types() {
  return ::testing::Combine(::testing::ValuesIn(devices()), ::testing::Values(DType::float32, DType::float64));
}
inline std::string device_and_type(const ::testing::TestParamInfo<std::tuple<Device, DType>>& info) {
  return name_of(std::get<0>(info.param)) + "_" + std::string(stagecoach::name_of(std::get<1>(info.param)));
}

}  // namespace stagecoach::test
