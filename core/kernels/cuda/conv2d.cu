/// @file
/// Convolutions as matrix products by implicit im2col: the second operand is never stored; its elements are loaded from
/// the image when they are needed (Chetlur et al., "cuDNN: Efficient primitives for deep learning", 2014, section 3).
/// The kernels, from plain to tensor cores, are in matrix_product.cuh, which names the page with their measured speeds.
///
///   forward      y[o, (n, p, q)]            = sum over (c, i, j) of weight[o, (c, i, j)] x[n, c, h, w]
///   grad_input   grad_x[c, (n, h, w)]       = sum over (o, i, j) of weight[o, c, i, j]   grad_y[n, o, p, q]
///                                             for each class of pixels that meet the same taps (i, j)
///   grad_weight  grad_weight[o, (c, i, j)]  = sum over (n, p, q) of grad_y[n, o, p, q]   x[n, c, h, w]
///   grad_bias    an additional column of grad_weight, with 1 in place of x
///
/// where h = p stride + i - padding and w = q stride + j - padding throughout.

#include <algorithm>

#include "core/kernels/cuda/arguments.h"
#include "core/kernels/cuda/fast_divmod.cuh"
#include "core/kernels/cuda/matrix_product.cuh"
#include "core/kernels/cuda/products.h"
#include "core/kernels/cuda/threads.cuh"
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

// ---- Gradients of the input
//
// With r = h + padding, pixel row h is tap i of output row p = (r - i) / stride, where r and i have the same remainder.
// So pixels whose row and column have certain remainders meet certain taps only, every stride-th one: among themselves
// they are the image of a convolution with stride 1. There are stride^2 such classes, and a product for each; one for
// all would multiply with a zero wherever a pixel does not meet a tap. The results of the classes are stored one after
// the other, [N, C, rows, columns] each, until a last pass puts their pixels where they belong: a product that stored
// every other pixel would use half of the memory's bandwidth.
// (strided_input_gradient.cuh needs no such pass.)

/// Every stride-th row (or column) of an image, from `first` on, and the taps that they meet.
struct EveryRow {
  EveryRow(int first_row, int extent, const ConvExtents& e)
      : first(first_row),
        count((extent - 1 - first) / e.stride + 1),
        first_tap((first + e.padding) % e.stride),
        taps(first_tap < e.kernel ? (e.kernel - 1 - first_tap) / e.stride + 1 : 0),
        output((first + e.padding) / e.stride) {}
  int first;
  int count;
  int first_tap;
  int taps;
  int output;  // the output row whose tap `first_tap` is pixel row `first`
};

/// The pixels of a class.
struct PixelClass {
  EveryRow rows;
  EveryRow columns;
  int taps() const { return rows.taps * columns.taps; }
  int pixels() const { return rows.count * columns.count; }
  /// Unflattens (o, i, j), where i and j count the taps of the class.
  Unflatten tap() const { return {FastDivmod(rows.taps), FastDivmod(columns.taps)}; }
  /// Unflattens (n, h, w), where h and w count the pixels of the class.
  Unflatten pixel() const { return {FastDivmod(rows.count), FastDivmod(columns.count)}; }
};

/// grad_y as the operand [O I J, N H W], for the I x J taps and H x W pixels of a class: for pixel (n, h, w), the
/// outputs (h + output - i, w + output - j), in whose window the pixel is tap (i, j).
template <class T>
struct GradientIm2col {
  static constexpr bool kContiguousK = false;
  using Mn = WindowAt<T>;
  using K = Tap;
  const T* grad_y;
  int pixels;  // N H W
  int channels;
  int rows;  // of grad_y
  int columns;
  int first_row;  // of the output for pixel 0 and tap 0
  int first_column;
  Unflatten pixel;
  Unflatten tap;

  __device__ Mn mn(int index) const {
    if (index >= pixels) {
      return no_window(grad_y);
    }
    const Index3 at = pixel(index);
    const int row = at.second + first_row;
    const int column = at.third + first_column;
    return {grad_y + (at.first * channels * rows * columns + row * columns + column),
            window_mask(outside(row, rows), outside(column, columns))};
  }
  __device__ K k(int index, int end) const {
    if (index >= end) {
      return no_tap();
    }
    const Index3 at = tap(index);
    return {at.first * rows * columns - at.second * columns - at.third, tap_mask(at.second, at.third)};
  }
  __device__ static T load(const Mn& pixel, const K& tap) { return load_tap(pixel, tap); }

 private:
  /// Returns a mask of the taps i for which row - i is not in 0 … count - 1.
  __device__ static std::uint32_t outside(int row, int count) {
    return low_bits(kMaxKernel) & ~(low_bits(row + 1) & ~low_bits(row - count + 1));
  }
};

/// weight [O, C, K, K] as the operand [C, O I J], for the taps of a class.
template <class T>
struct ClassWeights {
  static constexpr bool kContiguousK = true;  // nearly: taps are `stride` elements apart
  using Mn = int;                             // offsets
  using K = int;
  const T* first;  // tap of the class
  int channels;
  int kernel;
  int stride;
  Unflatten tap;
  __device__ Mn mn(int c) const { return c < channels ? c * kernel * kernel : kOutside; }
  __device__ K k(int index, int end) const {
    const Index3 at = tap(index);
    return index < end ? at.first * channels * kernel * kernel + (at.second * kernel + at.third) * stride : kOutside;
  }
  __device__ T load(Mn mn, K k) const { return load_at(first, mn + k); }
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
GradientIm2col<T> gradient_im2col_of(const ConvExtents& e, const PixelClass& c, const T* grad_y) {
  return {grad_y,        e.samples * c.pixels(), e.outputs, e.rows, e.columns,
          c.rows.output, c.columns.output,       c.pixel(), c.tap()};
}

/// Stores the gradient of the pixels of a class, [N, C, rows, columns], in `out`.
template <class T>
void grad_input_of_class(Device device, const ConvExtents& e, const PixelClass& c, const T* grad_y, const T* weight,
                         T* out, Planner planner) {
  const ProductExtents product{e.channels, e.samples * c.pixels(), e.outputs * c.taps()};
  const ProductPlan plan = planner(product, dtype_of<T>, device);
  const ClassWeights<T> a{weight + c.rows.first_tap * e.kernel + c.columns.first_tap, e.channels, e.kernel, e.stride,
                          c.tap()};
  const PlanesResult<T> result{out, e.channels, FastDivmod(c.pixels()), nullptr};
  multiply<T>(device, plan, a, gradient_im2col_of(e, c, grad_y), result, product);
}

/// The classes of an image, each in a region of the same size.
struct PixelClasses {
  explicit PixelClasses(const ConvExtents& extents)
      : e(extents),
        down(std::min(e.stride, e.height)),
        across(std::min(e.stride, e.width)),
        size(static_cast<long long>(e.samples) * e.channels * EveryRow(0, e.height, e).count *
             EveryRow(0, e.width, e).count) {}
  __host__ __device__ long long offset(int row, int column) const {
    return size * (static_cast<long long>(row) * across + column);
  }
  long long elements() const { return offset(down, 0); }

  ConvExtents e;
  int down;
  int across;
  long long size;
};

/// out [N, C, H, W] = the pixels of all classes, and 0 where a pixel meets no tap. A thread per pixel.
template <class T>
__global__ void interleave_classes(int count, PixelClasses classes, Unflatten pixel, FastDivmod stride, const T* from,
                                   T* out) {
  const ConvExtents& e = classes.e;
  const auto at = static_cast<int>(element());
  if (at >= count) {
    return;
  }
  const Index3 of = pixel(at);  // n and c in one, h, w
  const int row = stride.quotient(of.second);
  const int column = stride.quotient(of.third);
  const int first_row = stride.remainder(of.second, row);
  const int first_column = stride.remainder(of.third, column);
  const int rows = stride.quotient(e.height - 1 - first_row) + 1;
  const int columns = stride.quotient(e.width - 1 - first_column) + 1;
  const auto meets_taps = [&](int first) {
    return stride.remainder(first + e.padding, stride.quotient(first + e.padding)) < e.kernel;
  };
  const long long index =
      classes.offset(first_row, first_column) + (static_cast<long long>(of.first) * rows + row) * columns + column;
  out[at] = predicated_load(meets_taps(first_row) && meets_taps(first_column), from + index);
}

template <class T>
void grad_input_by_classes(Device device, const ConvExtents& e, const T* grad_y, const T* weight, T* grad_x,
                           Planner planner) {
  const PixelClasses classes(e);
  Workspace<T> workspace(classes.elements(), device);
  for (int row = 0; row < classes.down; ++row) {
    for (int column = 0; column < classes.across; ++column) {
      const PixelClass pixels{EveryRow(row, e.height, e), EveryRow(column, e.width, e)};
      if (pixels.taps() > 0) {
        grad_input_of_class(device, e, pixels, grad_y, weight, workspace.data() + classes.offset(row, column), planner);
      }
    }
  }
  launch_elements(device, interleave_classes<T>, e.samples * e.channels * e.pixels(), classes,
                  Unflatten{FastDivmod(e.height), FastDivmod(e.width)}, FastDivmod(e.stride), workspace.data(), grad_x);
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
    T* to = grad_x.mutable_data<T>();
    if (e.stride == 1) {
      const PixelClass all{EveryRow(0, e.height, e), EveryRow(0, e.width, e)};
      grad_input_of_class(grad_y.device(), e, all, grad_y.data<T>(), weight.data<T>(), to, planner);
    } else {
      grad_input_by_classes(grad_y.device(), e, grad_y.data<T>(), weight.data<T>(), to, planner);
    }
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
    if (takes_shifted_conv2d(x, y, window)) {
      shifted_conv2d(x, weight, bias, y);
    } else if (takes_strided_conv2d(x, y, window)) {
      strided_conv2d(x, weight, bias, y);
    } else {
      conv2d(x, weight, bias, window, y, fastest_plan);
    }
  };
  table.conv2d_grad_input = [](const Tensor& grad_y, const Tensor& weight, const Window& window, Tensor& grad_x) {
    if (takes_shifted_conv2d(grad_y, grad_x, window)) {
      shifted_conv2d_grad_input(grad_y, weight, grad_x);
    } else if (takes_strided_grad_input(grad_y, grad_x, window)) {
      strided_conv2d_grad_input(grad_y, weight, window, grad_x);
    } else {
      conv2d_grad_input(grad_y, weight, window, grad_x, fastest_plan);
    }
  };
  table.conv2d_grad_weight = [](const Tensor& grad_y, const Tensor& x, const Window& window, Tensor& grad_weight,
                                Tensor& grad_bias) {
    if (!grad_bias.defined() && takes_shifted_weight_gradient(grad_y, x, window)) {
      shifted_conv2d_grad_weight(grad_y, x, window, grad_weight);
    } else {
      conv2d_grad_weight(grad_y, x, window, grad_weight, grad_bias, fastest_plan);
    }
  };
}

}  // namespace stagecoach::cuda
