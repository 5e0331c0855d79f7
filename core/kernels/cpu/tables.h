#pragma once
/// @file
/// The tables of the CPU, filled row by row: its kernels; the same for a thread with a meter (core/kernel_meter.h),
/// which is told their costs; for asynchronous devices, the calls that append them to a device's compute stream; and
/// for the device `meta`, costs alone.

#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "core/kernel_meter.h"
#include "core/kernels/kernels.h"
#include "core/stream_order.h"

namespace stagecoach::cpu {

/// What a call reads and writes, and the device that it runs on.
struct Accesses {
  std::vector<Access> all;
  std::optional<Device> device;  // none if every tensor is undefined

  /// Returns the tensor for the queue to keep.
  Tensor read(const Tensor& tensor) { return keep(tensor, false); }
  Tensor write(const Tensor& tensor);

 private:
  Tensor keep(const Tensor& tensor, bool writes);
};

// How the queue keeps an argument, by the type of the kernel's parameter.
template <class Parameter>
struct Kept {
  static auto of(const Parameter& value, Accesses&) { return value; }
};
template <class Setting>
struct Kept<const Setting&> {
  static Setting of(const Setting& value, Accesses&) { return value; }
};
template <>
struct Kept<const Tensor&> {
  static Tensor of(const Tensor& tensor, Accesses& accesses) { return accesses.read(tensor); }
};
template <>
struct Kept<Tensor&> {
  static Tensor of(const Tensor& tensor, Accesses& accesses) { return accesses.write(tensor); }
};
template <>
struct Kept<std::span<Tensor>> {
  static std::vector<Tensor> of(std::span<Tensor> tensors, Accesses& accesses);
};
template <>
struct Kept<std::span<const Tensor>> {
  static std::vector<Tensor> of(std::span<const Tensor> tensors, Accesses& accesses);
};
template <>
struct Kept<std::span<ParameterUpdate>> {
  static std::vector<ParameterUpdate> of(std::span<ParameterUpdate> updates, Accesses& accesses);
};

/// Returns the device of the first tensor that a call is given; none if every tensor is undefined.
inline std::optional<Device> device_of(const Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor.device()) : std::nullopt;
}
std::optional<Device> device_of(std::span<const Tensor> tensors);
inline std::optional<Device> device_of(std::span<Tensor> tensors) {
  return device_of(std::span<const Tensor>(tensors));
}
std::optional<Device> device_of(std::span<ParameterUpdate> updates);
template <class Setting>
std::optional<Device> device_of(const Setting&) {
  return std::nullopt;
}

/// Returns the row of kernel_costs() with the same name as the only row that `table` has.
void (*cost_row(const Kernels& table))();

/// One row in its forms, all of which have the row's parameters.
template <auto row>
struct Row;
template <class... Parameters, void (*Kernels::*row)(Parameters...)>
struct Row<row> {
  using Kernel = void (*)(Parameters...);
  static inline const char* name = nullptr;
  static inline Kernel kernel = nullptr;

  static void tell_meter(Parameters... arguments) {
    if (KernelMeter* meter = KernelMeter::current()) {
      std::optional<Device> device;
      ((device = device ? device : device_of(arguments)), ...);
      if (device) {
        Kernels table{};
        table.*row = kernel;
        static const auto cost = reinterpret_cast<KernelCost (*)(Parameters...)>(cost_row(table));
        meter->add(name, *device, cost(arguments...));
      }
    }
  }
  static void run_metered(Parameters... arguments) {
    tell_meter(arguments...);
    kernel(arguments...);
  }
  static void queue(Parameters... arguments) {
    tell_meter(arguments...);
    Accesses accesses;
    accesses.all.reserve(8);
    std::tuple kept{Kept<Parameters>::of(arguments, accesses)...};
    if (accesses.device) {
      enqueue({*accesses.device, Stream::kCompute}, name, accesses.all, OrderedBy::caller,
              [kept = std::move(kept)]() mutable { std::apply([](auto&... each) { kernel(each...); }, kept); });
    }
  }
};

struct Tables {
  Kernels kernels;
  Kernels metered;
  Kernels queued;
  Kernels meta;

  /// Fills a row of all tables. An error in a queued call names it `name`.
  template <auto row>
  void add(const char* name, typename Row<row>::Kernel kernel) {
    Row<row>::kernel = kernel;
    Row<row>::name = name;
    kernels.*row = kernel;
    metered.*row = Row<row>::run_metered;
    queued.*row = Row<row>::queue;
    meta.*row = Row<row>::tell_meter;
  }
};

}  // namespace stagecoach::cpu
