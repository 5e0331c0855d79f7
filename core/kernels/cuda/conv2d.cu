/// @file
/// Convolutions as matrix products by implicit im2col: the second operand is never stored; its elements are loaded from
/// the image when they are needed (Chetlur et al., "cuDNN: Efficient primitives for deep learning", 2014, section 3).
/// The kernels, from plain to tensor cores, are in matrix_product.cuh, which names the page with their measured speeds.
///
///   forward      y[o, (n, p, q)]            = sum over (c, i, j) of weight[o, (c, i, j)] x[n, c, h, w]
///   grad_input   grad_x[c, (n, h, w)]       = sum over (o, i, j) of weight[o, c, i, j]   grad_y[n, o, p, q]
///   grad_weight  grad_weight[o, (c, i, j)]  = sum over (n, p, q) of grad_y[n, o, p, q]   x[n, c, h, w]
///   grad_bias    an additional column of grad_weight, with 1 in place of x
///
/// where h = p stride + i - padding and w = q stride + j - padding throughout.

#include "core/kernels/cuda/arguments.h"
#include "core/kernels/cuda/fast_divmod.cuh"
#include "core/kernels/cuda/matrix_product.cuh"
#include "core/kernels/cuda/products.h"
#include "core/kernels/groups.h"

namespace stagecoach::cuda {

struct ConvExtents {
  ConvExtents(const Tensor& x, const Tensor& y, const Window& window)
      : samples(to_int(x.size(0))),
        channels(to_int(x.size(1))),
        height(to_int(x.size(2))),
        width(to_int(x.size(3))),
        outputs(to_int(y.size(1))),
        kernel(kernel_of(window)),
        stride(to_int(window.stride)),
        padding(to_int(window.padding)),
        rows(to_int(y.size(2))),
        columns(to_int(y.size(3))) {
    to_int(x.numel(), kMaxElements);
    to_int(y.numel(), kMaxElements);
    to_int(x.size(1) * y.size(1) * window.kernel * window.kernel, kMaxElements);  // of the weight
  }
  constexpr int taps() const { return kernel * kernel; }
  constexpr int pixels() const { return height * width; }
  constexpr int positions() const { return rows * columns; }

  int samples;   // N
  int channels;  // C
  int height;    // H
  int width;     // W
  int outputs;   // O
  int kernel;    // K
  int stride;
  int padding;
  int rows;     // P
  int columns;  // Q
};

struct Index3 {
  int first;
  int second;
  int third;
};
/// Unflattens an index: at = (first * middle.value() + second) * last.value() + third.
struct Unflatten {
  FastDivmod middle;
  FastDivmod last;
  __device__ Index3 operator()(int at) const {
    const int rest = last.quotient(at);
    const int first = middle.quotient(rest);
    return {first, middle.remainder(rest, first), last.remainder(at, rest)};
  }
};

// ---- Windows
//
// An element of an image has two indices: the position of the window, and the tap within the window. Its address is the
// sum of two numbers, one from each. Whether the pixel exists is checked by one instruction on validity masks: a
// window's mask marks the rows and columns that are outside the image, a tap's mask its own row and column.

/// Bits 0 to kMaxKernel - 1 are the rows of a window, the next kMaxKernel bits its columns. One more bit, kNowhere, is
/// set in the mask of every window, and kOne in that of a tap that is in no window and represents the number 1.
constexpr std::uint32_t kNowhere = std::uint32_t{1} << (2 * kMaxKernel);
constexpr std::uint32_t kOne = std::uint32_t{1} << (2 * kMaxKernel + 1);

/// Returns a mask of bits 0 to count - 1, for any count.
__device__ inline std::uint32_t low_bits(int count) {
  return (std::uint32_t{1} << (count < 0 ? 0 : count < kMaxKernel ? count : kMaxKernel)) - 1;
}
__device__ inline std::uint32_t window_mask(std::uint32_t rows_outside, std::uint32_t columns_outside) {
  return kNowhere | columns_outside << kMaxKernel | rows_outside;
}
__device__ inline std::uint32_t tap_mask(int row, int column) {
  return std::uint32_t{1} << (kMaxKernel + column) | std::uint32_t{1} << row;
}

/// A window of an image. A thread has few of them.
template <class T>
struct WindowAt {
  const T* corner;  // where its first tap would be
  std::uint32_t mask;
};
/// A tap, the same for all windows.
struct alignas(8) Tap {
  int offset;  // from the corner
  std::uint32_t mask;
};
/// Returns a window that has no tap.
template <class T>
__device__ WindowAt<T> no_window(const T* data) {
  return {data, ~std::uint32_t{0}};
}
/// Returns a tap that is in no window.
__device__ inline Tap no_tap() { return {0, kNowhere}; }

template <class T>
__device__ T load_tap(const WindowAt<T>& window, const Tap& tap, T outside = 0) {
  return predicated_load((window.mask & tap.mask) == 0, window.corner + tap.offset, outside);
}

/// x as the operand [C K K, N P Q]: taps (c, i, j) by positions (n, p, q).
template <class T>
struct Im2col {
  static constexpr bool kContiguousK = false;
  using Mn = WindowAt<T>;
  using K = Tap;
  const T* x;
  int positions;
  ConvExtents e;
  Unflatten position;  // (n, p, q)
  Unflatten tap;       // (c, i, j)

  __device__ Mn mn(int index) const {
    if (index >= positions) {
      return no_window(x);
    }
    const Index3 at = position(index);
    const int top = at.second * e.stride - e.padding;
    const int left = at.third * e.stride - e.padding;
    return {x + (at.first * e.channels * e.pixels() + top * e.width + left),
            window_mask(outside(top, e.height), outside(left, e.width))};
  }
  __device__ K k(int index, int end) const {
    if (index >= end) {
      return no_tap();
    }
    const Index3 at = tap(index);
    return {at.first * e.pixels() + at.second * e.width + at.third, tap_mask(at.second, at.third)};
  }
  __device__ static T load(const Mn& window, const K& tap) { return load_tap(window, tap); }

 private:
  /// Returns a bit mask of the rows (or columns) that are outside 0 … extent - 1, for a window that begins at `start`.
  __device__ static std::uint32_t outside(int start, int extent) {
    return low_bits(-start) | (low_bits(kMaxKernel) & ~low_bits(extent - start));
  }
};

/// The transpose of Im2col with an additional column: [N P Q, C K K + 1], of which the last column is ones.
template <class T>
struct TransposedIm2col {
  static constexpr bool kContiguousK = true;
  using Mn = Tap;
  using K = WindowAt<T>;
  Im2col<T> im2col;
  int taps;  // C K K

  __device__ Mn mn(int index) const { return index == taps ? Mn{0, kNowhere | kOne} : im2col.k(index, taps); }
  __device__ K k(int index, int end) const { return index < end ? im2col.mn(index) : no_window(im2col.x); }
  __device__ static T load(const Mn& tap, const K& window) {
    return load_tap(window, tap, (tap.mask & kOne) != 0 ? T(1) : T(0));
  }
};

/// grad_y as the operand [O K K, N H W]: for pixel (n, h, w), the outputs in whose window the pixel is tap (i, j).
///
/// With r = h + padding, the output row is p = (r - i) / stride if r and i have the same remainder. Then p is the
/// difference of the two quotients, again one number from each index.
template <class T>
struct GradientIm2col {
  static constexpr bool kContiguousK = false;
  using Mn = WindowAt<T>;
  using K = Tap;
  const T* grad_y;
  int pixels;
  ConvExtents e;
  FastDivmod stride;
  std::uint32_t every;  // bits 0, stride, 2 stride and so on
  Unflatten pixel;      // (n, h, w)
  Unflatten tap;        // (o, i, j)

  __device__ Mn mn(int index) const {
    if (index >= pixels) {
      return no_window(grad_y);
    }
    const Index3 at = pixel(index);
    const int row = at.second + e.padding;
    const int column = at.third + e.padding;
    const int p = stride.quotient(row);
    const int q = stride.quotient(column);
    return {grad_y + (at.first * e.outputs * e.positions() + p * e.columns + q),
            window_mask(outside(row, p, e.rows), outside(column, q, e.columns))};
  }
  __device__ K k(int index, int end) const {
    if (index >= end) {
      return no_tap();
    }
    const Index3 at = tap(index);
    return {at.first * e.positions() - stride.quotient(at.second) * e.columns - stride.quotient(at.third),
            tap_mask(at.second, at.third)};
  }
  __device__ static T load(const Mn& pixel, const K& tap) { return load_tap(pixel, tap); }

 private:
  /// Returns a mask of the taps i at which a pixel in `row` belongs to no output; `quotient` is row / stride. Outputs
  /// are 0 to count - 1: row - i is from 0 to (count - 1) stride, and a multiple of the stride.
  __device__ std::uint32_t outside(int row, int quotient, int count) const {
    const int first = row - (count - 1) * e.stride;
    const int remainder = stride.remainder(row, quotient);
    const std::uint32_t taps = remainder < kMaxKernel ? every << remainder : 0;
    return low_bits(kMaxKernel) & ~(taps & low_bits(row + 1) & ~low_bits(first));
  }
};

/// The product [M, N S] stored as planes [N, M, S].
template <class T>
struct PlanesResult {
  T* data;
  int channels;      // M
  FastDivmod plane;  // S
  const T* bias;     // [M] or null
  __device__ bool takes_pairs() const { return plane.value() % 2 == 0 && is_aligned<2>(data); }
  __device__ void store(int m, int column, T value) const { at(m, column) = bias == nullptr ? value : value + bias[m]; }
  __device__ void store(int m, int column, Vector2<T> values) const {
    if (bias != nullptr) {
      for (T& value : values.at) {
        value += bias[m];
      }
    }
    reinterpret_cast<Vector2<T>&>(at(m, column)) = values;
  }

 private:
  __device__ T& at(int m, int column) const {
    const int n = plane.quotient(column);
    return data[(static_cast<long long>(n) * channels + m) * plane.value() + plane.remainder(column, n)];
  }
};

template <class T>
Im2col<T> im2col_of(const ConvExtents& e, const T* x) {
  return {x, e.samples * e.positions(), e, Unflatten{FastDivmod(e.rows), FastDivmod(e.columns)},
          Unflatten{FastDivmod(e.kernel), FastDivmod(e.kernel)}};
}

template <class T>
GradientIm2col<T> gradient_im2col_of(const ConvExtents& e, const T* grad_y) {
  std::uint32_t every = 0;
  for (int i = 0; i < kMaxKernel; i += e.stride) {
    every |= std::uint32_t{1} << i;
  }
  return {grad_y,
          e.samples * e.pixels(),
          e,
          FastDivmod(e.stride),
          every,
          Unflatten{FastDivmod(e.height), FastDivmod(e.width)},
          Unflatten{FastDivmod(e.kernel), FastDivmod(e.kernel)}};
}

void conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Window& window, Tensor& y,
            Planner planner) {
  dispatch_floating(x.dtype(), "conv2d", [&]<class T>() {
    const ConvExtents e(x, y, window);
    const ProductExtents product{e.outputs, e.samples * e.positions(), e.channels * e.taps()};
    const ProductPlan plan = planner(product, x.dtype(), x.device());
    const MatrixOperand<T, true> a{weight.data<T>(), e.outputs, product.k, 1};
    const PlanesResult<T> result{y.mutable_data<T>(), e.outputs, FastDivmod(e.positions()), data_or_null<T>(bias)};
    multiply<T>(x.device(), plan, a, im2col_of(e, x.data<T>()), result, product);
  });
}

void conv2d_grad_input(const Tensor& grad_y, const Tensor& weight, const Window& window, Tensor& grad_x,
                       Planner planner) {
  dispatch_floating(grad_y.dtype(), "conv2d_grad_input", [&]<class T>() {
    const ConvExtents e(grad_x, grad_y, window);
    const ProductExtents product{e.channels, e.samples * e.pixels(), e.outputs * e.taps()};
    const ProductPlan plan = planner(product, grad_y.dtype(), grad_y.device());
    const PlanesOperand<T> a{weight.data<T>(), e.channels, FastDivmod(e.taps())};  // [O, C, K K]
    const PlanesResult<T> result{grad_x.mutable_data<T>(), e.channels, FastDivmod(e.pixels()), nullptr};
    multiply<T>(grad_y.device(), plan, a, gradient_im2col_of(e, grad_y.data<T>()), result, product);
  });
}

/// Computes grad_weight, and grad_bias as an additional column; the plan is the same with or without that column.
void conv2d_grad_weight(const Tensor& grad_y, const Tensor& x, const Window& window, Tensor& grad_weight,
                        Tensor& grad_bias, Planner planner) {
  dispatch_floating(x.dtype(), "conv2d_grad_weight", [&]<class T>() {
    const ConvExtents e(x, grad_y, window);
    const int taps = e.channels * e.taps();
    ProductExtents product{e.outputs, taps, e.samples * e.positions()};
    const ProductPlan plan = planner(product, x.dtype(), x.device());
    product.n += grad_bias.defined() ? 1 : 0;
    const PlanesOperand<T> a{grad_y.data<T>(), e.outputs, FastDivmod(e.positions())};  // [N, O, P Q]
    const WeightResult<T> result{mutable_data_or_null<T>(grad_weight), mutable_data_or_null<T>(grad_bias), taps};
    const TransposedIm2col<T> b{im2col_of(e, x.data<T>()), taps};
    multiply<T>(x.device(), plan, a, b, result, product);
  });
}

void add_conv2d(Kernels& table) {
  table.conv2d = [](const Tensor& x, const Tensor& weight, const Tensor& bias, const Window& window, Tensor& y) {
    conv2d(x, weight, bias, window, y, fastest_plan);
  };
  table.conv2d_grad_input = [](const Tensor& grad_y, const Tensor& weight, const Window& window, Tensor& grad_x) {
    conv2d_grad_input(grad_y, weight, window, grad_x, fastest_plan);
  };
  table.conv2d_grad_weight = [](const Tensor& grad_y, const Tensor& x, const Window& window, Tensor& grad_weight,
                                Tensor& grad_bias) {
    conv2d_grad_weight(grad_y, x, window, grad_weight, grad_bias, fastest_plan);
  };
}

}  // namespace stagecoach::cuda
