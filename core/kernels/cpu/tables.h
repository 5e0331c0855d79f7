#pragma once
/// @file
/// The two tables of the CPU: its kernels, and for asynchronous devices the calls that append them to a device's
/// compute stream. Both are filled row by row.

#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

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
struct Kept<std::span<ParameterUpdate>> {
  static std::vector<ParameterUpdate> of(std::span<ParameterUpdate> updates, Accesses& accesses);
};

/// One row of the second table: `call` has the row's parameters.
template <auto row>
struct Queued;
template <class... Parameters, void (*Kernels::*row)(Parameters...)>
struct Queued<row> {
  static inline const char* name = nullptr;
  using Kernel = void (*)(Parameters...);
  static inline Kernel kernel = nullptr;
  static void call(Parameters... arguments) {
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
  Kernels queued;

  /// Fills a row of both tables. An error in a queued call names it `name`.
  template <auto row>
  void add(const char* name, typename Queued<row>::Kernel kernel) {
    kernels.*row = kernel;
    queued.*row = Queued<row>::call;
    Queued<row>::kernel = kernel;
    Queued<row>::name = name;
  }
};

}  // namespace stagecoach::cpu
