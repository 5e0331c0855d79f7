/// @file
/// Convolutions as matrix products whose second operand is never written down: its elements are looked up in the
/// picture when they are needed ("implicit" products; Chetlur et al., "cuDNN: Efficient primitives for deep learning",
/// 2014, section 3). The kernels, from plain to tensor cores, are in matrix_product.cuh, which names the page of their
/// measured speeds.
///
///   forward      y[o, (n, p, q)]            = sum over (c, i, j) of weight[o, (c, i, j)] x[n, c, h, w]
///   grad_input   grad_x[c, (n, h, w)]       = sum over (o, i, j) of weight[o, c, i, j]   grad_y[n, o, p, q]
///   grad_weight  grad_weight[o, (c, i, j)]  = sum over (n, p, q) of grad_y[n, o, p, q]   x[n, c, h, w]
///   grad_bias    one more column of that, with 1 in place of x
///
/// where h = p stride + i - padding and w = q stride + j - padding throughout.

#include "core/kernels/cuda/divisor.cuh"
#include "core/kernels/cuda/functions.h"
#include "core/kernels/cuda/matrix_product.cuh"

namespace stagecoach::cuda {

/// Cuts one number into three: at = (first * middle.value() + second) * last.value() + third.
struct Three {
  int first;
  int second;
  int third;
};
struct Cut {
  Divisor middle;
  Divisor last;
  __device__ Three operator()(int at) const {
    const int rest = last.quotient(at);
    const int first = middle.quotient(rest);
    return {first, middle.remainder(rest, first), last.remainder(at, rest)};
  }
};

/// One of the two indices of an operand that lies in a picture: the element is at the sum of two spots, as long as the
/// pixel at the sum of their rows and columns is in the picture.
struct alignas(16) Spot {
  int at;  // in memory
  int row;
  int column;
};
/// No sum with it is in a picture.
__device__ inline Spot nowhere() { return {0, -(1 << 29), 0}; }

/// Whether 0 <= value < end, as one comparison.
__device__ inline bool is_within(int value, int end) {
  return static_cast<unsigned>(value) < static_cast<unsigned>(end);
}

/// x seen from the positions (n, p, q), along the taps (c, i, j).
template <class T>
struct PicturePatches {
  static constexpr bool kDepthInARow = false;
  using Outer = Spot;
  using Depth = Spot;
  const T* x;
  int positions;
  ConvExtents e;
  Cut position;  // (n, p, q)
  Cut tap;       // (c, i, j)

  __device__ Outer outer(int index) const {
    if (index >= positions) {
      return nowhere();
    }
    const Three at = position(index);
    const int top = at.second * e.stride - e.padding;
    const int left = at.third * e.stride - e.padding;
    return {at.first * e.channels * e.pixels() + top * e.width + left, top, left};
  }
  __device__ Depth depth(int k, int end) const { return k < end ? spot_of(k) : nowhere(); }
  __device__ Spot spot_of(int k) const {
    const Three at = tap(k);
    return {at.first * e.pixels() + at.second * e.width + at.third, at.second, at.third};
  }
  __device__ T load(const Outer& from, const Depth& to, T outside = 0) const {
    const bool inside = is_within(from.row + to.row, e.height) & is_within(from.column + to.column, e.width);
    return load_if(inside, x + (from.at + to.at), outside);
  }
};

/// x seen from the taps (c, i, j), and behind the last one from a column of ones, along the positions (n, p, q): the
/// same elements, turned over.
template <class T>
struct TurnedPatches {
  static constexpr bool kDepthInARow = true;
  using Outer = Spot;
  using Depth = Spot;
  PicturePatches<T> patches;
  int taps;  // C K K

  __device__ static Spot ones() { return {1, nowhere().row, 0}; }
  __device__ Outer outer(int index) const { return index == taps ? ones() : patches.depth(index, taps); }
  __device__ Depth depth(int k, int end) const { return k < end ? patches.outer(k) : nowhere(); }
  __device__ T load(const Outer& to, const Depth& from) const {
    return patches.load(from, to, to.row == ones().row ? static_cast<T>(to.at) : T(0));
  }
};

/// grad_y seen from the pixels (n, h, w), along (o, i, j): the outputs in whose window the pixel is at place (i, j).
/// Without strides (kStrides false, for stride 1) there is one for each place.
template <class T, bool kStrides>
struct GradientPatches {
  static constexpr bool kDepthInARow = false;
  using Outer = Spot;
  using Depth = Spot;
  const T* grad_y;
  int pixels;
  ConvExtents e;
  Divisor stride;
  Cut pixel;  // (n, h, w)
  Cut tap;    // (o, i, j)

  __device__ Outer outer(int index) const {
    if (index >= pixels) {
      return nowhere();
    }
    const Three at = pixel(index);
    const int row = at.second + e.padding;
    const int column = at.third + e.padding;
    const int picture = at.first * e.outputs * e.positions();
    return {kStrides ? picture : picture + row * e.columns + column, row, column};
  }
  __device__ Depth depth(int k, int end) const {
    if (k >= end) {
      return nowhere();
    }
    const Three at = tap(k);
    const int output = at.first * e.positions();
    return {kStrides ? output : output - at.second * e.columns - at.third, -at.second, -at.third};
  }
  __device__ T load(const Outer& from, const Depth& to) const {
    const int down = from.row + to.row;          // p stride
    const int across = from.column + to.column;  // q stride
    if constexpr (!kStrides) {
      return load_if(is_within(down, e.rows) & is_within(across, e.columns), grad_y + (from.at + to.at));
    } else {
      const bool inside = is_within(down, e.rows * e.stride) & is_within(across, e.columns * e.stride);
      const int p = stride.quotient(inside ? down : 0);
      const int q = stride.quotient(inside ? across : 0);
      const bool meets = (stride.remainder(down, p) | stride.remainder(across, q)) == 0;
      return load_if(meets & inside, grad_y + (from.at + to.at + p * e.columns + q));
    }
  }
};

/// Planes [N, M, S]: the product's row m and column (n, s).
template <class T>
struct PlanesResult {
  T* data;
  int channels;   // M
  Divisor plane;  // S
  const T* bias;  // [M] or null
  __device__ bool in_twos() const { return plane.value() % 2 == 0 && is_aligned<2>(data); }
  __device__ void store(int m, int column, T value) const { at(m, column) = bias == nullptr ? value : value + bias[m]; }
  __device__ void store(int m, int column, Two<T> values) const {
    if (bias != nullptr) {
      for (T& value : values.at) {
        value += bias[m];
      }
    }
    reinterpret_cast<Two<T>&>(at(m, column)) = values;
  }

 private:
  __device__ T& at(int m, int column) const {
    const int n = plane.quotient(column);
    return data[(static_cast<long long>(n) * channels + m) * plane.value() + plane.remainder(column, n)];
  }
};

template <class T>
PicturePatches<T> patches_of(const ConvExtents& e, const T* x) {
  return {x, e.samples * e.positions(), e, Cut{Divisor(e.rows), Divisor(e.columns)},
          Cut{Divisor(e.kernel), Divisor(e.kernel)}};
}

template <class T>
void conv2d(cudaStream_t stream, const ProductPlan& plan, const ConvExtents& e, const T* x, const T* weight,
            const T* bias, T* y, T* partial) {
  const int depth = e.channels * e.taps();
  const MatrixOperand<T, true> a{weight, e.outputs, depth, 1};
  const PlanesResult<T> result{y, e.outputs, Divisor(e.positions()), bias};
  multiply(stream, plan, a, patches_of(e, x), result, e.forward(), partial);
}

template <class T>
void conv2d_grad_input(cudaStream_t stream, const ProductPlan& plan, const ConvExtents& e, const T* grad_y,
                       const T* weight, T* grad_x, T* partial) {
  const PlanesOperand<T> a{weight, e.channels, Divisor(e.taps())};  // [O, C, K K]
  const PlanesResult<T> result{grad_x, e.channels, Divisor(e.pixels()), nullptr};
  const auto multiply_by = [&]<bool kStrides>() {
    const GradientPatches<T, kStrides> b{grad_y,
                                         e.samples * e.pixels(),
                                         e,
                                         Divisor(e.stride),
                                         Cut{Divisor(e.height), Divisor(e.width)},
                                         Cut{Divisor(e.kernel), Divisor(e.kernel)}};
    multiply(stream, plan, a, b, result, e.grad_input(), partial);
  };
  if (e.stride == 1) {
    multiply_by.template operator()<false>();
  } else {
    multiply_by.template operator()<true>();
  }
}

template <class T>
void conv2d_grad_weight(cudaStream_t stream, const ProductPlan& plan, const ConvExtents& e, bool and_bias,
                        const T* grad_y, const T* x, T* grad_weight, T* grad_bias, T* partial) {
  const int taps = e.channels * e.taps();
  const PlanesOperand<T> a{grad_y, e.outputs, Divisor(e.positions())};  // [N, O, P Q]
  const TurnedPatches<T> b{patches_of(e, x), taps};
  multiply(stream, plan, a, b, WeightResult<T>{grad_weight, grad_bias, taps}, e.grad_weight(and_bias), partial);
}

#define STAGECOACH_INSTANTIATE(T)                                                                                      \
  template void conv2d<T>(cudaStream_t, const ProductPlan&, const ConvExtents&, const T*, const T*, const T*, T*, T*); \
  template void conv2d_grad_input<T>(cudaStream_t, const ProductPlan&, const ConvExtents&, const T*, const T*, T*,     \
                                     T*);                                                                              \
  template void conv2d_grad_weight<T>(cudaStream_t, const ProductPlan&, const ConvExtents&, bool, const T*, const T*,  \
                                      T*, T*, T*);
STAGECOACH_INSTANTIATE(float)
STAGECOACH_INSTANTIATE(double)
#undef STAGECOACH_INSTANTIATE

}  // namespace stagecoach::cuda
