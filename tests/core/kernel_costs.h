#pragma once
/// @file
/// The costs of kernels against a count. A test writes the formula of a row of kernels.h as plain loops over numbers
/// that count what is computed with them. The loops have the results of the kernel, as many operations as the row's
/// cost says, and read the tensors whose bytes it counts; and the kernels of each backend take the workspace and the
/// launches that it says.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <vector>

#include "core/allocator.h"
#include "core/kernels/costs.h"
#include "core/kernels/cpu/vec.h"
#include "core/kernels/kernels.h"
#include "core/kernels/levels.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace stagecoach::test {

/// A number that counts the operations on numbers like it.
struct Counted {
  Counted(double number = 0) : value(number) {}  // NOLINT: constants are numbers too
  double value;
  static inline std::int64_t operations = 0;
  static Counted result(double value) {
    ++operations;
    return value;
  }
};
inline Counted operator+(Counted a, Counted b) { return Counted::result(a.value + b.value); }
inline Counted operator-(Counted a, Counted b) { return Counted::result(a.value - b.value); }
inline Counted operator*(Counted a, Counted b) { return Counted::result(a.value * b.value); }
inline Counted operator/(Counted a, Counted b) { return Counted::result(a.value / b.value); }
inline Counted& operator+=(Counted& a, Counted b) { return a = a + b; }
inline Counted& operator-=(Counted& a, Counted b) { return a = a - b; }
inline bool operator<(Counted a, Counted b) { return Counted::result(a.value < b.value ? 1 : 0).value != 0; }
inline Counted exp(Counted x) { return Counted::result(std::exp(x.value)); }
inline Counted log(Counted x) { return Counted::result(std::log(x.value)); }
inline Counted sqrt(Counted x) { return Counted::result(std::sqrt(x.value)); }
inline Counted tanh(Counted x) { return Counted::result(std::tanh(x.value)); }
inline Counted erf(Counted x) { return Counted::result(std::erf(x.value)); }

/// A tensor's elements as such numbers. A row's inputs are constant in its plain form; those that it reads say so.
struct Array {
  explicit Array(const Tensor& tensor);
  std::int64_t size(int dim) const { return shape[dim]; }
  std::int64_t count() const { return static_cast<std::int64_t>(elements.size()); }
  Counted& operator[](std::int64_t i) { return elements.at(static_cast<std::size_t>(i)); }
  const Counted& operator[](std::int64_t i) const {
    was_read = true;
    return elements.at(static_cast<std::size_t>(i));
  }
  /// Returns an integer element.
  std::int64_t index(std::int64_t i) const { return static_cast<std::int64_t>((*this)[i].value); }
  void clear() { elements.assign(elements.size(), 0); }

  bool defined;
  bool was_unwritten = true;  ///< before the call
  mutable bool was_read = false;
  Shape shape;
  std::vector<Counted> elements;
};

/// What a row writes without reading it holds this before the call.
inline Tensor unwritten(const Shape& shape, DType dtype = DType::float64) {
  return Tensor::full(shape, dtype == DType::int32 ? 77 : std::nan(""), dtype);
}

inline Array::Array(const Tensor& tensor) : defined(tensor.defined()) {
  if (!defined) {
    return;
  }
  shape = tensor.shape();
  const auto take = [&]<class T>(T /*type*/) {
    const std::vector<T> values = tensor.to_vector<T>();
    elements.assign(values.begin(), values.end());
  };
  switch (tensor.dtype()) {
    case DType::float32:
      take(float{});
      break;
    case DType::float64:
      take(double{});
      break;
    case DType::int32:
      take(std::int32_t{});
      break;
    case DType::uint8:
      take(std::uint8_t{});
      break;
    case DType::float16:
      for (const Half half : tensor.to_vector<Half>()) {
        elements.emplace_back(to_float(half));
      }
  }
  was_unwritten = elements.empty() || std::isnan(elements[0].value) || elements[0].value == 77;
}

// ---- Arguments of a row: those that are tensors become arrays, or tensors of another type and device

inline Array as_array(const Tensor& tensor) { return Array(tensor); }
template <class Setting>
Setting as_array(const Setting& setting) {
  return setting;
}

inline Tensor copied(const Tensor& tensor) { return tensor.defined() ? tensor.clone() : Tensor(); }
template <class Setting>
Setting copied(const Setting& setting) {
  return setting;
}

inline Tensor moved(const Tensor& tensor, DType dtype, Device device) {
  if (!tensor.defined() || tensor.dtype() != DType::float64) {
    return tensor.defined() ? tensor.to(device) : Tensor();
  }
  return typed(values_of(tensor), tensor.shape(), dtype, device);
}
template <class Setting>
Setting moved(const Setting& setting, DType /*dtype*/, Device /*device*/) {
  return setting;
}

/// How many kernels, copies and fills emulated GPUs were given so far; null in other builds.
inline long (*pieces_of_work)() = nullptr;

/// The backends whose workspace can be compared. The CPU's is that of AVX2.
inline std::vector<Device> backends() {
  std::vector<Device> all;
  if (cpu::kVectorBytes == 32 && cpu::built_levels().size() == 1) {
    all.push_back(fresh_device());
  }
  if (has_cuda()) {
    all.push_back(kCuda);
  }
  return all;
}

template <auto row, auto cost_row>
struct CheckedCost;

/// This matches where both tables have the row with the same parameters.
template <class... Parameters, void (*Kernels::*row)(Parameters...),
          KernelCost (*KernelCosts::*cost_row)(Parameters...)>
struct CheckedCost<row, cost_row> {
  template <class Plain>
  static void expect_operations_and_bytes(const Plain& plain, std::decay_t<Parameters>... arguments) {
    const KernelCost cost = (kernel_costs().*cost_row)(arguments...);
    std::tuple arrays{as_array(arguments)...};
    Counted::operations = 0;
    std::apply(plain, arrays);
    EXPECT_EQ(cost.flops, Counted::operations);
    (kernels({}).*row)(arguments...);
    std::int64_t read = 0;
    std::int64_t written = 0;
    std::apply([&](const auto&... array) { (check<Parameters>(array, arguments, read, written), ...); }, arrays);
    EXPECT_EQ(cost.bytes_read, read);
    EXPECT_EQ(cost.bytes_written, written);
  }

  static void expect_backends(DType dtype, const std::decay_t<Parameters>&... arguments) {
    for (const Device device : backends()) {
      SCOPED_TRACE(to_string(device) + ", " + name_of(dtype));
      std::tuple here{moved(arguments, dtype, device)...};
      std::apply([&](auto&... each) { expect_backend(device, each...); }, here);
    }
  }

 private:
  /// Adds the bytes of an argument, and compares what both forms wrote.
  template <class Parameter, class Plain, class Argument>
  static void check(const Plain& array, const Argument& argument, std::int64_t& read, std::int64_t& written) {
    if constexpr (std::is_same_v<Argument, Tensor>) {
      const auto bytes = argument.defined() ? static_cast<std::int64_t>(argument.bytes()) : 0;
      constexpr bool kIsInput = std::is_same_v<Parameter, const Tensor&>;
      read += (kIsInput ? array.was_read : !array.was_unwritten) ? bytes : 0;
      written += kIsInput ? 0 : bytes;
      const Array result(argument);
      for (std::int64_t i = 0; !kIsInput && i < result.count(); ++i) {
        const double expected = array.elements[static_cast<std::size_t>(i)].value;
        EXPECT_NEAR(result[i].value, expected, 1e-6 * (1 + std::abs(expected))) << "element " << i;
      }
    }
  }

  static void expect_backend(Device device, std::decay_t<Parameters>&... arguments) {
    const BackendCost cost = (kernel_costs().*cost_row)(arguments...).on(device.type);
    Allocator& memory = allocator(device);
    memory.reset_peak();
    const std::size_t before = memory.stats().current_bytes;
    const long work_before = pieces_of_work == nullptr ? 0 : pieces_of_work();
    (kernels(device).*row)(arguments...);
    if (device.type == DeviceType::cuda && pieces_of_work != nullptr) {
      EXPECT_EQ(cost.launches, pieces_of_work() - work_before);
    }
    const auto workspace = static_cast<std::int64_t>(memory.stats().peak_bytes - before);
    EXPECT_GE(workspace, cost.workspace_bytes);
    constexpr std::int64_t kMaxBlocks = 10;  // each is rounded up
    EXPECT_LT(workspace, cost.workspace_bytes + kMaxBlocks * static_cast<std::int64_t>(Allocator::kAlignment));
  }
};

/// Checks the cost of a call. `plain` takes the same arguments, with arrays in place of tensors.
template <auto row, auto cost_row, class Plain, class... Arguments>
void expect_cost(const Plain& plain, const Arguments&... arguments) {
  CheckedCost<row, cost_row>::expect_operations_and_bytes(plain, copied(arguments)...);
  CheckedCost<row, cost_row>::expect_backends(DType::float64, arguments...);
  CheckedCost<row, cost_row>::expect_backends(DType::float32, arguments...);
}

}  // namespace stagecoach::test
