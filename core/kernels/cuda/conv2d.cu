/// @file
/// Convolutions as matrix products whose second operand is never written down: its elements are looked up in the
/// picture when they are needed ("implicit" products; Chetlur et al., "cuDNN: Efficient primitives for deep learning",
/// 2014, section 3). The kernels, from plain to tensor cores, are in matrix_product.cuh, which names the page of their
/// measured speeds.
///
///   forward      y[o, (n, p, q)]            = sum over (c, i, j) of weight[o, (c, i, j)] x[n, c, h, w]
///   grad_input   grad_x[c, (n, h, w)]       = sum over (o, i, j) of weight[o, c, i, j]   grad_y[n, o, p, q]
///   grad_weight  grad_weight[o, (c, i, j)]  = sum over (n, p, q) of grad_y[n, o, p, q]   x[n, c, h, w]
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

/// x seen from the positions (n, p, q), along the taps (c, i, j).
template <class T>
struct PicturePatches {
  static constexpr bool kDepthInARow = false;
  struct Outer {
    int picture;  // where it begins; negative outside
    int top;
    int left;
  };
  struct Depth {
    int channel;  // where it begins
    int down;
    int right;
  };
  const T* x;
  int positions;
  ConvExtents e;
  Cut position;  // (n, p, q)
  Cut tap;       // (c, i, j)

  __device__ Outer outer(int index) const {
    if (index >= positions) {
      return {-1, 0, 0};
    }
    const Three at = position(index);
    return {at.first * e.channels * e.pixels(), at.second * e.stride - e.padding, at.third * e.stride - e.padding};
  }
  __device__ Depth depth(int k) const {
    const Three at = tap(k);
    return {at.first * e.pixels(), at.second, at.third};
  }
  __device__ T load(const Outer& from, const Depth& to) const {
    const int h = from.top + to.down;
    const int w = from.left + to.right;
    const bool inside = from.picture >= 0 && h >= 0 && h < e.height && w >= 0 && w < e.width;
    return inside ? x[from.picture + to.channel + h * e.width + w] : T(0);
  }
};

/// x seen from the taps (c, i, j), along the positions (n, p, q): the same elements, turned over.
template <class T>
struct TurnedPatches {
  static constexpr bool kDepthInARow = true;
  using Patches = PicturePatches<T>;
  struct Outer {
    typename Patches::Depth tap;
    bool inside;
  };
  using Depth = typename Patches::Outer;
  Patches patches;
  int taps;  // C K K

  __device__ Outer outer(int index) const { return {patches.depth(index), index < taps}; }
  __device__ Depth depth(int k) const { return patches.outer(k); }
  __device__ T load(const Outer& to, const Depth& from) const { return to.inside ? patches.load(from, to.tap) : T(0); }
};

/// grad_y seen from the pixels (n, h, w), along (o, i, j): the outputs in whose window the pixel is at place (i, j).
template <class T>
struct GradientPatches {
  static constexpr bool kDepthInARow = false;
  struct Outer {
    int picture;  // where it begins; negative outside
    int bottom;
    int right;
  };
  struct Depth {
    int output;  // where it begins
    int up;
    int left;
  };
  const T* grad_y;
  int pixels;
  ConvExtents e;
  Divisor stride;
  Cut pixel;  // (n, h, w)
  Cut tap;    // (o, i, j)

  __device__ Outer outer(int index) const {
    if (index >= pixels) {
      return {-1, 0, 0};
    }
    const Three at = pixel(index);
    return {at.first * e.outputs * e.positions(), at.second + e.padding, at.third + e.padding};
  }
  __device__ Depth depth(int k) const {
    const Three at = tap(k);
    return {at.first * e.positions(), at.second, at.third};
  }
  __device__ T load(const Outer& from, const Depth& to) const {
    const int down = from.bottom - to.up;     // p stride
    const int across = from.right - to.left;  // q stride
    if (from.picture < 0 || down < 0 || across < 0) {
      return T(0);
    }
    const int p = stride.quotient(down);
    const int q = stride.quotient(across);
    const bool meets =
        stride.remainder(down, p) == 0 && stride.remainder(across, q) == 0 && p < e.rows && q < e.columns;
    return meets ? grad_y[from.picture + to.output + p * e.columns + q] : T(0);
  }
};

/// weight [O, C, K, K] seen from the channels, along (o, i, j).
template <class T>
struct TurnedWeight {
  static constexpr bool kDepthInARow = true;
  using Outer = int;  // where it begins; negative outside
  using Depth = int;
  const T* weight;
  int channels;
  Divisor taps;  // K K
  __device__ Outer outer(int c) const { return c < channels ? c * taps.value() : -1; }
  __device__ Depth depth(int k) const {
    const int o = taps.quotient(k);
    return o * channels * taps.value() + taps.remainder(k, o);
  }
  __device__ T load(Outer channel, Depth tap) const { return channel >= 0 ? weight[channel + tap] : T(0); }
};

/// grad_y [N, O, P Q] seen from the outputs, along (n, p, q).
template <class T>
struct GradientRows {
  static constexpr bool kDepthInARow = true;
  using Outer = int;  // where it begins; negative outside
  using Depth = int;
  const T* grad_y;
  int outputs;
  Divisor positions;  // P Q
  __device__ Outer outer(int o) const { return o < outputs ? o * positions.value() : -1; }
  __device__ Depth depth(int k) const {
    const int n = positions.quotient(k);
    return n * outputs * positions.value() + positions.remainder(k, n);
  }
  __device__ T load(Outer output, Depth position) const { return output >= 0 ? grad_y[output + position] : T(0); }
};

/// Planes [N, M, S]: the product's row m and column (n, s).
template <class T>
struct PlanesResult {
  T* data;
  int channels;   // M
  Divisor plane;  // S
  const T* bias;  // [M] or null
  __device__ void store(int m, int column, int, T value) const {
    const int n = plane.quotient(column);
    data[(static_cast<long long>(n) * channels + m) * plane.value() + plane.remainder(column, n)] =
        bias == nullptr ? value : value + bias[m];
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
  const TurnedWeight<T> a{weight, e.channels, Divisor(e.taps())};
  const GradientPatches<T> b{grad_y,
                             e.samples * e.pixels(),
                             e,
                             Divisor(e.stride),
                             Cut{Divisor(e.height), Divisor(e.width)},
                             Cut{Divisor(e.kernel), Divisor(e.kernel)}};
  const PlanesResult<T> result{grad_x, e.channels, Divisor(e.pixels()), nullptr};
  multiply(stream, plan, a, b, result, e.grad_input(), partial);
}

template <class T>
void conv2d_grad_weight(cudaStream_t stream, const ProductPlan& plan, const ConvExtents& e, const T* grad_y, const T* x,
                        T* grad_weight, T* partial) {
  const int taps = e.channels * e.taps();
  const GradientRows<T> a{grad_y, e.outputs, Divisor(e.positions())};
  const TurnedPatches<T> b{patches_of(e, x), taps};
  multiply(stream, plan, a, b, MatrixResult<T>{grad_weight, taps, nullptr}, e.grad_weight(), partial);
}

#define STAGECOACH_INSTANTIATE(T)                                                                                      \
  template void conv2d<T>(cudaStream_t, const ProductPlan&, const ConvExtents&, const T*, const T*, const T*, T*, T*); \
  template void conv2d_grad_input<T>(cudaStream_t, const ProductPlan&, const ConvExtents&, const T*, const T*, T*,     \
                                     T*);                                                                              \
  template void conv2d_grad_weight<T>(cudaStream_t, const ProductPlan&, const ConvExtents&, const T*, const T*, T*, T*);
STAGECOACH_INSTANTIATE(float)
STAGECOACH_INSTANTIATE(double)
#undef STAGECOACH_INSTANTIATE

}  // namespace stagecoach::cuda
