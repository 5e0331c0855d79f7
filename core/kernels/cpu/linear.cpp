#include "core/kernels/cpu/linear.h"

#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/lanes.h"
#include "core/kernels/cpu/scratch.h"
#include "core/kernels/cpu/tile.h"
#include "core/parallel_for.h"

namespace stagecoach {
namespace cpu::fast {
namespace {

/// Calls body(row, height, column, width) for each tile of a result of `rows` x `columns` vectors. Tiles of the same
/// columns follow each other, so the vectors that they share stay in the cache.
template <class Body>
void for_each_tile(Device device, std::int64_t rows, std::int64_t columns, const Body& body) {
  if (rows == 0 || columns == 0) {
    return;
  }
  const Parts row_parts(rows, kMaxRows);
  const Parts column_parts(columns, max_columns(row_parts.size(row_parts.count - 1)));
  parallel_for(device, row_parts.count * column_parts.count, [&](std::int64_t tile) {
    const std::int64_t r = tile % row_parts.count;
    const std::int64_t c = tile / row_parts.count;
    body(row_parts.begin(r), row_parts.size(r), column_parts.begin(c), column_parts.size(c));
  });
}

/// A factor of a matrix product whose vectors lie side by side in its rows: element [k, j] at data + k * row + j.
template <class T>
struct Rows {
  T* data;
  std::int64_t row;
};

/// out[r, j] = sum over k < depth of a[r, k] b[k, j], for r < rows and j < vectors * kLanes. Element [r, k] of `a` is
/// at a + r * a_row + k * a_step.
template <class T>
void multiply(Device device, std::int64_t rows, std::int64_t depth, std::int64_t vectors, const T* a,
              std::int64_t a_row, std::int64_t a_step, Rows<const T> b, Rows<T> out) {
  for_each_tile(device, rows, vectors, [&](std::int64_t r, int height, std::int64_t j, int width) {
    TileCall<T> call{};
    call.taps = {1, 1, depth};
    call.x = b.data + j * kLanes<T>;
    call.x_steps = {0, 0, b.row, kLanes<T>};
    call.weight = a + r * a_row;
    call.weight_steps = {0, 0, a_step, a_row};
    call.y = out.data + r * out.row + j * kLanes<T>;
    call.y_row = out.row;
    call.y_column = kLanes<T>;
    run_tile<T>(height, width, call);
  });
}

/// The same for any width. A last vector that is not full works on a copy of b with zeros behind it.
template <class T>
void product(Device device, std::int64_t rows, std::int64_t depth, std::int64_t width, const T* a, std::int64_t a_row,
             std::int64_t a_step, const T* b, T* out) {
  const std::int64_t whole = width / kLanes<T>;
  const std::int64_t tail = width % kLanes<T>;
  if (whole > 0) {
    multiply<T>(device, rows, depth, whole, a, a_row, a_step, {b, width}, {out, width});
  }
  if (tail == 0) {
    return;
  }
  const auto copy_tail = [tail](const T* from, T* to) {
    std::memcpy(to, from, static_cast<std::size_t>(tail) * sizeof(T));
  };
  Scratch<T> last_b(device, depth * kLanes<T>);
  Scratch<T> last_out(device, rows * kLanes<T>);
  std::fill_n(last_b.data(), depth * kLanes<T>, T(0));
  for (std::int64_t k = 0; k < depth; ++k) {
    copy_tail(b + k * width + width - tail, last_b.data() + k * kLanes<T>);
  }
  multiply<T>(device, rows, depth, 1, a, a_row, a_step, {last_b.data(), kLanes<T>}, {last_out.data(), kLanes<T>});
  for (std::int64_t r = 0; r < rows; ++r) {
    copy_tail(last_out.data() + r * kLanes<T>, out + r * width + width - tail);
  }
}

}  // namespace

/// Lanes are samples: a group of samples is turned to [I, lanes], so that a weight meets a vector of samples.
template <class T>
void linear(Device device, const LinearShape& shape, const T* x, const T* weight, const T* bias, T* y) {
  const std::int64_t groups = groups_of<T>(shape.samples);
  const std::int64_t x_group = shape.inputs * kLanes<T>;
  const std::int64_t y_group = shape.outputs * kLanes<T>;
  Scratch<T> x_lanes(device, groups * x_group);  // [G, I, lanes]
  Scratch<T> y_lanes(device, groups * y_group);  // [G, O, lanes]
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

}  // namespace cpu::fast

void CpuKernels::linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& y) const {
  dispatch_floating(x.dtype(), "linear", [&]<class T>() {
    cpu::fast::linear<T>(x.device(), {x.size(0), x.size(1), weight.size(0)}, x.data<T>(), weight.data<T>(),
                         bias.defined() ? bias.data<T>() : nullptr, y.mutable_data<T>());
  });
}

void CpuKernels::linear_grad_input(const Tensor& grad_y, const Tensor& weight, Tensor& grad_x) const {
  dispatch_floating(grad_y.dtype(), "linear_grad_input", [&]<class T>() {
    cpu::fast::linear_grad_input<T>(grad_y.device(), {grad_y.size(0), weight.size(1), weight.size(0)}, grad_y.data<T>(),
                                    weight.data<T>(), grad_x.mutable_data<T>());
  });
}

void CpuKernels::linear_grad_weight(const Tensor& grad_y, const Tensor& x, Tensor& grad_weight) const {
  dispatch_floating(grad_y.dtype(), "linear_grad_weight", [&]<class T>() {
    cpu::fast::linear_grad_weight<T>(grad_y.device(), {x.size(0), x.size(1), grad_y.size(1)}, grad_y.data<T>(),
                                     x.data<T>(), grad_weight.mutable_data<T>());
  });
}

}  // namespace stagecoach
