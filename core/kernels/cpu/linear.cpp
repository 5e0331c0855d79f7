#include "core/kernels/cpu/linear.h"

#include "core/kernels/cpu/channels.h"
#include "core/kernels/cpu/lanes.h"
#include "core/kernels/cpu/matrix_product.h"
#include "core/kernels/cpu/tables.h"
#include "core/kernels/cpu/tile.h"
#include "core/kernels/cpu/workspace.h"
#include "core/kernels/groups.h"
#include "core/parallel_for.h"

namespace stagecoach::cpu {
namespace fast {

/// Lanes are samples: a group of samples is transposed to [I, lanes], so that one weight multiplies a vector of
/// samples.
template <class T>
void linear(Device device, const LinearShape& shape, const T* x, const T* weight, const T* bias, T* y) {
  const std::int64_t groups = groups_of<T>(shape.samples);
  const std::int64_t x_group = shape.inputs * kLanes<T>;
  const std::int64_t y_group = shape.outputs * kLanes<T>;
  Workspace<T> x_lanes(device, groups * x_group);  // [G, I, lanes]
  Workspace<T> y_lanes(device, groups * y_group);  // [G, O, lanes]
  const auto samples_from = [&](std::int64_t group) { return shape.samples - group * kLanes<T>; };
  parallel_for(device, groups, [&](std::int64_t group) {
    rows_to_lanes(x + group * x_group, shape.inputs, samples_from(group), shape.inputs,
                  [&](std::int64_t i) { return x_lanes.data() + group * x_group + i * kLanes<T>; });
  });
  for_each_tile(device, shape.outputs, groups, [&](std::int64_t o, int height, std::int64_t group, int width) {
    TileCall<T> call{};
    call.taps = {1, 1, shape.inputs};
    call.x = x_lanes.data() + group * x_group;
    call.x_steps = {0, 0, kLanes<T>, x_group};
    call.weight = weight + o * shape.inputs;
    call.weight_steps = {0, 0, 1, shape.inputs};
    call.bias = bias == nullptr ? nullptr : bias + o;
    call.y = y_lanes.data() + group * y_group + o * kLanes<T>;
    call.y_row = kLanes<T>;
    call.y_column = y_group;
    run_tile<T>(height, width, call);
  });
  parallel_for(device, groups, [&](std::int64_t group) {
    lanes_to_rows(y_lanes.data() + group * y_group, samples_from(group), shape.outputs, y + group * y_group,
                  shape.outputs);
  });
}

template <class T>
void linear_grad_input(Device device, const LinearShape& shape, const T* grad_y, const T* weight, T* grad_x) {
  product(device, shape.samples, shape.outputs, shape.inputs, grad_y, shape.outputs, 1, weight, grad_x);
}

template <class T>
void linear_grad_weight(Device device, const LinearShape& shape, const T* grad_y, const T* x, T* grad_weight) {
  product(device, shape.outputs, shape.samples, shape.inputs, grad_y, 1, shape.outputs, x, grad_weight);
}

#define STAGECOACH_INSTANTIATE(T)                                                         \
  template void linear<T>(Device, const LinearShape&, const T*, const T*, const T*, T*);  \
  template void linear_grad_input<T>(Device, const LinearShape&, const T*, const T*, T*); \
  template void linear_grad_weight<T>(Device, const LinearShape&, const T*, const T*, T*);
STAGECOACH_INSTANTIATE(float)
STAGECOACH_INSTANTIATE(double)
#undef STAGECOACH_INSTANTIATE

}  // namespace fast

namespace {

void linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& y) {
  dispatch_floating(x.dtype(), "linear", [&]<class T>() {
    fast::linear<T>(x.device(), {x.size(0), x.size(1), weight.size(0)}, x.data<T>(), weight.data<T>(),
                    bias.defined() ? bias.data<T>() : nullptr, y.mutable_data<T>());
  });
}

void linear_grad_input(const Tensor& grad_y, const Tensor& weight, Tensor& grad_x) {
  dispatch_floating(grad_y.dtype(), "linear_grad_input", [&]<class T>() {
    fast::linear_grad_input<T>(grad_y.device(), {grad_y.size(0), weight.size(1), weight.size(0)}, grad_y.data<T>(),
                               weight.data<T>(), grad_x.mutable_data<T>());
  });
}

void linear_grad_weight(const Tensor& grad_y, const Tensor& x, Tensor& grad_weight, Tensor& grad_bias) {
  if (grad_bias.defined()) {
    channel_sums(grad_y, grad_bias);
  }
  if (!grad_weight.defined()) {
    return;
  }
  dispatch_floating(grad_y.dtype(), "linear_grad_weight", [&]<class T>() {
    fast::linear_grad_weight<T>(grad_y.device(), {x.size(0), x.size(1), grad_y.size(1)}, grad_y.data<T>(), x.data<T>(),
                                grad_weight.mutable_data<T>());
  });
}

}  // namespace

void add_linear(Tables& tables) {
  tables.add<&Kernels::linear>("linear", linear);
  tables.add<&Kernels::linear_grad_input>("linear_grad_input", linear_grad_input);
  tables.add<&Kernels::linear_grad_weight>("linear_grad_weight", linear_grad_weight);
}

}  // namespace stagecoach::cpu
