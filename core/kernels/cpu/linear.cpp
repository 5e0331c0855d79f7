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
namespace {

/// Lanes are samples: a group of samples is transposed to [I, lanes], so that one weight multiplies a vector of
/// samples.
void linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& y) {
  dispatch_floating(x.dtype(), "linear", [&]<class T>() {
    const Device device = x.device();
    const LinearShape s{x.size(0), x.size(1), weight.size(0)};
    const T* from = x.data<T>();
    const T* weights = weight.data<T>();
    const T* biases = bias.defined() ? bias.data<T>() : nullptr;
    T* to = y.mutable_data<T>();
    const std::int64_t groups = groups_of<T>(s.samples);
    const std::int64_t x_group = s.inputs * kLanes<T>;
    const std::int64_t y_group = s.outputs * kLanes<T>;
    Workspace<T> x_lanes(device, groups * x_group);  // [G, I, lanes]
    Workspace<T> y_lanes(device, groups * y_group);  // [G, O, lanes]
    const auto samples_from = [&](std::int64_t group) { return s.samples - group * kLanes<T>; };
    parallel_for(device, groups, [&](std::int64_t group) {
      rows_to_lanes(from + group * x_group, s.inputs, samples_from(group), s.inputs,
                    [&](std::int64_t i) { return x_lanes.data() + group * x_group + i * kLanes<T>; });
    });
    for_each_tile(device, s.outputs, groups, [&](std::int64_t o, int height, std::int64_t group, int width) {
      TileCall<T> call{};
      call.taps = {1, 1, s.inputs};
      call.x = x_lanes.data() + group * x_group;
      call.x_steps = {0, 0, kLanes<T>, x_group};
      call.weight = weights + o * s.inputs;
      call.weight_steps = {0, 0, 1, s.inputs};
      call.bias = biases == nullptr ? nullptr : biases + o;
      call.y = y_lanes.data() + group * y_group + o * kLanes<T>;
      call.y_row = kLanes<T>;
      call.y_column = y_group;
      run_tile<T>(height, width, call);
    });
    parallel_for(device, groups, [&](std::int64_t group) {
      lanes_to_rows(y_lanes.data() + group * y_group, samples_from(group), s.outputs, to + group * y_group, s.outputs);
    });
  });
}

void linear_grad_input(const Tensor& grad_y, const Tensor& weight, Tensor& grad_x) {
  dispatch_floating(grad_y.dtype(), "linear_grad_input", [&]<class T>() {
    const std::int64_t outputs = grad_y.size(1);
    product(grad_y.device(), grad_y.size(0), outputs, weight.size(1), grad_y.data<T>(), outputs, 1, weight.data<T>(),
            grad_x.mutable_data<T>());
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
    const std::int64_t outputs = grad_y.size(1);
    product(grad_y.device(), outputs, x.size(0), x.size(1), grad_y.data<T>(), 1, outputs, x.data<T>(),
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
