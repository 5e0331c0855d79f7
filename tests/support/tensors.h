#pragma once
/// @file
/// Tensors to test with, and comparisons that print both values.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "core/random.h"
#include "core/tensor.h"

namespace stagecoach {

/// For gtest, which would show the bytes in the names of tests.
inline void PrintTo(DType dtype, std::ostream* out) { *out << name_of(dtype); }

namespace test {

/// Standard normal numbers; the same name and shape give the same values for every dtype and device.
inline Tensor random_tensor(const Shape& shape, std::string_view name, DType dtype = DType::float64,
                            Device device = {}) {
  const Philox random(7, name);
  return dispatch_floating(dtype, "random_tensor", [&]<class T>() {
    std::vector<T> values(static_cast<std::size_t>(shape.numel()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<T>(random.normal(i));
    }
    return Tensor::from(values, shape, device);
  });
}

/// The same as a leaf that collects a gradient.
inline Tensor random_leaf(const Shape& shape, std::string_view name, DType dtype = DType::float64, Device device = {}) {
  return random_tensor(shape, name, dtype, device).set_requires_grad(true);
}

/// 0 … classes-1, at random.
inline Tensor random_labels(std::int64_t count, std::int64_t classes, Device device = {}) {
  const Philox random(7, "labels");
  std::vector<std::int32_t> labels(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < labels.size(); ++i) {
    labels[i] = static_cast<std::int32_t>(random.below(i, static_cast<std::uint32_t>(classes)));
  }
  return Tensor::from(labels, {count}, device);
}

/// The elements of a floating tensor, as doubles.
inline std::vector<double> values_of(const Tensor& tensor) {
  return dispatch_floating(tensor.dtype(), "values_of", [&]<class T>() {
    const auto values = tensor.to_vector<T>();
    return std::vector<double>(values.begin(), values.end());
  });
}

/// Same shape, same type, and the same bytes (so -0 is not 0, and a NaN equals itself).
inline ::testing::AssertionResult same_bytes(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined() || a.shape() != b.shape() || a.dtype() != b.dtype()) {
    return ::testing::AssertionFailure() << describe(a) << " against " << describe(b);
  }
  const Tensor left = a.to(Device{});
  const Tensor right = b.to(Device{});
  const auto* x = static_cast<const char*>(left.raw_data());
  const auto* y = static_cast<const char*>(right.raw_data());
  const std::size_t size = size_of(a.dtype());
  for (std::size_t i = 0; i < static_cast<std::size_t>(a.numel()); ++i) {
    if (std::memcmp(x + i * size, y + i * size, size) != 0) {
      auto failure = ::testing::AssertionFailure() << describe(a) << " differs from element " << i << " on";
      if (a.dtype() == DType::float32 || a.dtype() == DType::float64) {
        failure << ": " << values_of(a)[i] << " against " << values_of(b)[i];
      }
      return failure;
    }
  }
  return ::testing::AssertionSuccess();
}

/// |a - b| <= atol + rtol |b| everywhere.
inline ::testing::AssertionResult close(const Tensor& a, const Tensor& b, double atol, double rtol) {
  if (!a.defined() || !b.defined() || a.shape() != b.shape()) {
    return ::testing::AssertionFailure() << describe(a) << " against " << describe(b);
  }
  const auto x = values_of(a);
  const auto y = values_of(b);
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!(std::abs(x[i] - y[i]) <= atol + rtol * std::abs(y[i]))) {
      return ::testing::AssertionFailure()
             << describe(a) << ", element " << i << ": " << x[i] << " against " << y[i] << ", off by " << x[i] - y[i];
    }
  }
  return ::testing::AssertionSuccess();
}

/// A float64 tensor from its elements.
inline Tensor of(const std::vector<double>& values, const Shape& shape, Device device = {}) {
  return Tensor::from(values, shape, device);
}

/// `values` as a tensor of type `dtype`.
template <class V>
Tensor typed(const std::vector<V>& values, const Shape& shape, DType dtype, Device device = {}) {
  return dispatch_floating(dtype, "typed", [&]<class T>() {
    return Tensor::from(std::vector<T>(values.begin(), values.end()), shape, device);
  });
}

/// One label a sample.
inline Tensor labels_of(const std::vector<std::int32_t>& labels, Device device = {}) {
  return Tensor::from(labels, {static_cast<std::int64_t>(labels.size())}, device);
}

}  // namespace test
}  // namespace stagecoach
