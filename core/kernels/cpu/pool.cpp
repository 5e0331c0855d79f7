#include <algorithm>

#include "core/kernels/cpu/pool_2x2.h"
#include "core/kernels/cpu/tables.h"
#include "core/kernels/groups.h"
#include "core/parallel_for.h"

namespace stagecoach::cpu {
namespace {

/// Returns whether `value` replaces `best`. NaN wins and propagates: a diverged run must be visible.
template <class T>
bool wins(T value, T best) {
  return (static_cast<int>(value > best) | static_cast<int>(value != value)) != 0;
}

/// Pools one plane: x [H, W] to y and argmax [P, Q].
template <class T>
void pool_plane(const T* x, std::int64_t height, std::int64_t width, const Window& window, std::int64_t rows,
                std::int64_t columns, T* y, std::int32_t* argmax) {
  for (std::int64_t p = 0; p < rows; ++p) {
    const std::int64_t top = p * window.stride - window.padding;
    const std::int64_t first_row = std::max<std::int64_t>(top, 0);
    const std::int64_t end_row = std::min(top + window.kernel, height);
    for (std::int64_t q = 0; q < columns; ++q) {
      const std::int64_t left = q * window.stride - window.padding;
      const std::int64_t first_column = std::max<std::int64_t>(left, 0);
      const std::int64_t end_column = std::min(left + window.kernel, width);
      std::int64_t best = first_row * width + first_column;
      for (std::int64_t i = first_row; i < end_row; ++i) {
        for (std::int64_t j = first_column; j < end_column; ++j) {
          const std::int64_t at = i * width + j;
          best = wins(x[at], x[best]) ? at : best;
        }
      }
      y[p * columns + q] = x[best];
      argmax[p * columns + q] = static_cast<std::int32_t>(best);
    }
  }
}

/// Pools one plane in the usual case: 2 x 2 with stride 2 and no padding.
template <class T>
void pool_plane_2x2(const T* x, std::int64_t width, std::int64_t rows, std::int64_t columns, T* y,
                    std::int32_t* argmax) {
  for_windows_2x2<T>(width, rows, columns, [&](const auto& windows, std::int64_t p, std::int64_t q) {
    const T* upper = x + 2 * (p * width + q);
    windows.pool(upper, upper + width, y + p * columns + q, argmax + p * columns + q);
  });
}

/// Computes the backward of windows that do not overlap: copies grad_y [P, Q] to the largest pixels of grad_x [H, W],
/// and writes 0 elsewhere.
template <class T>
void unpool_plane_2x2(const T* grad_y, const std::int32_t* argmax, std::int64_t height, std::int64_t width,
                      std::int64_t rows, std::int64_t columns, T* grad_x) {
  for_windows_2x2<T>(width, rows, columns, [&](const auto& windows, std::int64_t p, std::int64_t q) {
    T* upper = grad_x + 2 * (p * width + q);
    windows.unpool(grad_y + p * columns + q, argmax + p * columns + q, upper, upper + width);
  });
  for (std::int64_t h = 0; h < 2 * rows; ++h) {
    std::fill(grad_x + h * width + 2 * columns, grad_x + (h + 1) * width, T(0));
  }
  std::fill(grad_x + 2 * rows * width, grad_x + height * width, T(0));
}

/// Computes the backward in all other cases: windows may overlap, so their gradients are added.
template <class T>
void unpool_plane(const T* grad_y, const std::int32_t* argmax, std::int64_t outputs, std::int64_t inputs, T* grad_x) {
  std::fill_n(grad_x, inputs, T(0));
  for (std::int64_t i = 0; i < outputs; ++i) {
    grad_x[argmax[i]] += grad_y[i];
  }
}

bool is_2x2(const Window& window) { return window.kernel == 2 && window.stride == 2 && window.padding == 0; }

void max_pool2d(const Tensor& x, const Window& window, Tensor& y, Tensor& argmax) {
  dispatch_floating(x.dtype(), "max_pool2d", [&]<class T>() {
    const std::int64_t channels = x.size(1);
    const std::int64_t height = x.size(2);
    const std::int64_t width = x.size(3);
    const std::int64_t rows = y.size(2);
    const std::int64_t columns = y.size(3);
    const T* from = x.data<T>();                          // [N, C, H, W]
    T* to = y.mutable_data<T>();                          // [N, C, P, Q]
    auto* indices = argmax.mutable_data<std::int32_t>();  // [N, C, P, Q]
    parallel_for(x.device(), x.size(0), [&](std::int64_t n) {
      for (std::int64_t plane = n * channels; plane < (n + 1) * channels; ++plane) {
        const T* in = from + plane * height * width;
        T* out = to + plane * rows * columns;
        std::int32_t* index = indices + plane * rows * columns;
        if (is_2x2(window)) {
          pool_plane_2x2(in, width, rows, columns, out, index);
        } else {
          pool_plane(in, height, width, window, rows, columns, out, index);
        }
      }
    });
  });
}

void max_pool2d_grad(const Tensor& grad_y, const Tensor& argmax, const Window& window, Tensor& grad_x) {
  dispatch_floating(grad_y.dtype(), "max_pool2d_grad", [&]<class T>() {
    const std::int64_t channels = grad_y.size(1);
    const std::int64_t rows = grad_y.size(2);
    const std::int64_t columns = grad_y.size(3);
    const std::int64_t height = grad_x.size(2);
    const std::int64_t width = grad_x.size(3);
    const T* from = grad_y.data<T>();                   // [N, C, P, Q]
    const auto* indices = argmax.data<std::int32_t>();  // [N, C, P, Q]
    T* to = grad_x.mutable_data<T>();                   // [N, C, H, W]
    parallel_for(grad_y.device(), grad_y.size(0), [&](std::int64_t n) {
      for (std::int64_t plane = n * channels; plane < (n + 1) * channels; ++plane) {
        const T* grad = from + plane * rows * columns;
        const std::int32_t* index = indices + plane * rows * columns;
        T* into = to + plane * height * width;
        if (is_2x2(window)) {
          unpool_plane_2x2(grad, index, height, width, rows, columns, into);
        } else {
          unpool_plane(grad, index, rows * columns, height * width, into);
        }
      }
    });
  });
}

void global_average_pool(const Tensor& x, Tensor& y) {
  dispatch_floating(x.dtype(), "global_average_pool", [&]<class T>() {
    const std::int64_t plane = x.size(2) * x.size(3);
    const T* from = x.data<T>();  // [N, C, H, W]
    T* to = y.mutable_data<T>();  // [N, C]
    parallel_for(x.device(), x.size(0), [&](std::int64_t n) {
      for (std::int64_t i = n * x.size(1); i < (n + 1) * x.size(1); ++i) {
        T sum = 0;
        for (std::int64_t s = 0; s < plane; ++s) {
          sum += from[i * plane + s];
        }
        to[i] = sum / static_cast<T>(plane);
      }
    });
  });
}

void global_average_pool_grad(const Tensor& grad_y, Tensor& grad_x) {
  dispatch_floating(grad_y.dtype(), "global_average_pool_grad", [&]<class T>() {
    const std::int64_t plane = grad_x.size(2) * grad_x.size(3);
    const T* from = grad_y.data<T>();  // [N, C]
    T* to = grad_x.mutable_data<T>();  // [N, C, H, W]
    parallel_for(grad_y.device(), grad_y.numel(),
                 [&](std::int64_t i) { std::fill_n(to + i * plane, plane, from[i] / static_cast<T>(plane)); });
  });
}

}  // namespace

void add_pool(Tables& tables) {
  tables.add<&Kernels::max_pool2d>("max_pool2d", max_pool2d);
  tables.add<&Kernels::max_pool2d_grad>("max_pool2d_grad", max_pool2d_grad);
  tables.add<&Kernels::global_average_pool>("global_average_pool", global_average_pool);
  tables.add<&Kernels::global_average_pool_grad>("global_average_pool_grad", global_average_pool_grad);
}

}  // namespace stagecoach::cpu
