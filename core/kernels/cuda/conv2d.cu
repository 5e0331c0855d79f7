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

// ---- Windows
//
// An element of a picture is found by two indices: where the window lies, and the tap, which is a place in the window.
// Its place in memory is the sum of two numbers, one from each. Whether there is a pixel at all takes one instruction:
// a window's bits say which of its rows and columns look at none, and a tap's bits are its row and its column.

/// Bits for the rows and columns of windows up to kMost x kMost, one that every window has, and one of a tap that is in
/// no window and stands for the number 1.
template <class Word>
struct WindowBits {
  static constexpr int kMost = static_cast<int>(8 * sizeof(Word) - 1) / 2;
  static constexpr Word kNowhere = Word(1) << (2 * kMost);
  static constexpr Word kOne = Word(1) << (2 * kMost + 1);

  /// Bits 0 to count - 1, for any count.
  __device__ static Word low(int count) { return (Word(1) << (count < 0 ? 0 : count < kMost ? count : kMost)) - 1; }
  __device__ static Word of_window(Word rows_outside, Word columns_outside) {
    return kNowhere | columns_outside << kMost | rows_outside;
  }
  __device__ static Word of_tap(int row, int column) { return Word(1) << (kMost + column) | Word(1) << row; }
};

/// Windows wider than 15 taps are rare: the faster kernels are not compiled for them.
__extension__ typedef unsigned __int128 WideWord;

/// A window on a picture. A thread has few of them.
template <class T, class Word>
struct Window {
  const T* corner;  // where its first tap would be
  Word bits;
};
/// A tap of all windows. They stand in tables.
template <class Word>
struct alignas(sizeof(Word) < 8 ? 8 : 16) Tap {
  int at;  // behind the corner
  Word bits;
};
/// A window that has no tap.
template <class T, class Word>
__device__ Window<T, Word> no_window(const T* data) {
  return {data, ~Word(0)};
}
/// A tap that is in no window.
template <class Word>
__device__ Tap<Word> no_tap() {
  return {0, WindowBits<Word>::kNowhere};
}

template <class T, class Word>
__device__ T load_tap(const Window<T, Word>& window, const Tap<Word>& tap, T outside = 0) {
  return load_if((window.bits & tap.bits) == 0, window.corner + tap.at, outside);
}

/// x seen from the positions (n, p, q), along the taps (c, i, j).
template <class T, class Word>
struct PicturePatches {
  static constexpr bool kDepthInARow = false;
  using Bits = WindowBits<Word>;
  using Outer = Window<T, Word>;
  using Depth = Tap<Word>;
  const T* x;
  int positions;
  ConvExtents e;
  Cut position;  // (n, p, q)
  Cut tap;       // (c, i, j)

  __device__ Outer outer(int index) const {
    if (index >= positions) {
      return no_window<T, Word>(x);
    }
    const Three at = position(index);
    const int top = at.second * e.stride - e.padding;
    const int left = at.third * e.stride - e.padding;
    return {x + (at.first * e.channels * e.pixels() + top * e.width + left),
            Bits::of_window(outside(top, e.height), outside(left, e.width))};
  }
  __device__ Depth depth(int k, int end) const {
    if (k >= end) {
      return no_tap<Word>();
    }
    const Three at = tap(k);
    return {at.first * e.pixels() + at.second * e.width + at.third, Bits::of_tap(at.second, at.third)};
  }
  __device__ static T load(const Outer& window, const Depth& tap) { return load_tap(window, tap); }

 private:
  /// The rows of a window that begins at `start` which are not among 0 to extent - 1.
  __device__ static Word outside(int start, int extent) {
    return Bits::low(-start) | (Bits::low(Bits::kMost) & ~Bits::low(extent - start));
  }
};

/// x seen from the taps (c, i, j), and behind the last one from a column of ones, along the positions (n, p, q): the
/// same elements, turned over.
template <class T, class Word>
struct TurnedPatches {
  static constexpr bool kDepthInARow = true;
  using Bits = WindowBits<Word>;
  using Outer = Tap<Word>;
  using Depth = Window<T, Word>;
  PicturePatches<T, Word> patches;
  int taps;  // C K K

  __device__ Outer outer(int index) const {
    return index == taps ? Outer{0, Bits::kNowhere | Bits::kOne} : patches.depth(index, taps);
  }
  __device__ Depth depth(int k, int end) const { return k < end ? patches.outer(k) : no_window<T, Word>(patches.x); }
  __device__ static T load(const Outer& tap, const Depth& window) {
    return load_tap(window, tap, (tap.bits & Bits::kOne) != 0 ? T(1) : T(0));
  }
};

/// grad_y seen from the pixels (n, h, w), along (o, i, j): the outputs in whose window the pixel is at place (i, j).
///
/// With r = h + padding that is output row p = (r - i) / stride, if there is one: if r and i leave the same remainder.
/// Then p is the difference of the two quotients, again a number from each index.
template <class T, class Word>
struct GradientPatches {
  static constexpr bool kDepthInARow = false;
  using Bits = WindowBits<Word>;
  using Outer = Window<T, Word>;
  using Depth = Tap<Word>;
  const T* grad_y;
  int pixels;
  ConvExtents e;
  Divisor stride;
  Word every;  // bits 0, stride, 2 stride and so on
  Cut pixel;   // (n, h, w)
  Cut tap;     // (o, i, j)

  __device__ Outer outer(int index) const {
    if (index >= pixels) {
      return no_window<T, Word>(grad_y);
    }
    const Three at = pixel(index);
    const int row = at.second + e.padding;
    const int column = at.third + e.padding;
    const int p = stride.quotient(row);
    const int q = stride.quotient(column);
    return {grad_y + (at.first * e.outputs * e.positions() + p * e.columns + q),
            Bits::of_window(outside(row, p, e.rows), outside(column, q, e.columns))};
  }
  __device__ Depth depth(int k, int end) const {
    if (k >= end) {
      return no_tap<Word>();
    }
    const Three at = tap(k);
    return {at.first * e.positions() - stride.quotient(at.second) * e.columns - stride.quotient(at.third),
            Bits::of_tap(at.second, at.third)};
  }
  __device__ static T load(const Outer& pixel, const Depth& tap) { return load_tap(pixel, tap); }

 private:
  /// The places i of the window at which a pixel in `row` belongs to no output; `quotient` is row / stride. There are
  /// outputs 0 to count - 1: row - i is from 0 to (count - 1) stride, and a multiple of the stride.
  __device__ Word outside(int row, int quotient, int count) const {
    const int first = row - (count - 1) * e.stride;
    const int remainder = stride.remainder(row, quotient);
    const Word meeting = remainder < Bits::kMost ? every << remainder : Word(0);
    return Bits::low(Bits::kMost) & ~(meeting & Bits::low(row + 1) & ~Bits::low(first));
  }
};

template <class T>
inline constexpr bool is_rare<PicturePatches<T, WideWord>> = true;
template <class T>
inline constexpr bool is_rare<TurnedPatches<T, WideWord>> = true;
template <class T>
inline constexpr bool is_rare<GradientPatches<T, WideWord>> = true;

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

template <class Word, class T>
PicturePatches<T, Word> patches_of(const ConvExtents& e, const T* x) {
  return {x, e.samples * e.positions(), e, Cut{Divisor(e.rows), Divisor(e.columns)},
          Cut{Divisor(e.kernel), Divisor(e.kernel)}};
}

template <class Word, class T>
GradientPatches<T, Word> gradient_patches_of(const ConvExtents& e, const T* grad_y) {
  Word every = 0;
  for (int i = 0; i < WindowBits<Word>::kMost; i += e.stride) {
    every |= Word(1) << i;
  }
  return {grad_y,
          e.samples * e.pixels(),
          e,
          Divisor(e.stride),
          every,
          Cut{Divisor(e.height), Divisor(e.width)},
          Cut{Divisor(e.kernel), Divisor(e.kernel)}};
}

/// Calls body<Word>() with a word that has bits for the window.
template <class Body>
void with_word(const ConvExtents& e, const Body& body) {
  static_assert(WindowBits<WideWord>::kMost == ConvExtents::kWidestKernel);
  if (e.kernel <= WindowBits<std::uint32_t>::kMost) {
    body.template operator()<std::uint32_t>();
  } else {
    body.template operator()<WideWord>();
  }
}

template <class T>
void conv2d(cudaStream_t stream, const ProductPlan& plan, const ConvExtents& e, const T* x, const T* weight,
            const T* bias, T* y, T* partial) {
  const int depth = e.channels * e.taps();
  const MatrixOperand<T, true> a{weight, e.outputs, depth, 1};
  const PlanesResult<T> result{y, e.outputs, Divisor(e.positions()), bias};
  with_word(e, [&]<class Word>() { multiply(stream, plan, a, patches_of<Word>(e, x), result, e.forward(), partial); });
}

template <class T>
void conv2d_grad_input(cudaStream_t stream, const ProductPlan& plan, const ConvExtents& e, const T* grad_y,
                       const T* weight, T* grad_x, T* partial) {
  const PlanesOperand<T> a{weight, e.channels, Divisor(e.taps())};  // [O, C, K K]
  const PlanesResult<T> result{grad_x, e.channels, Divisor(e.pixels()), nullptr};
  with_word(e, [&]<class Word>() {
    multiply(stream, plan, a, gradient_patches_of<Word>(e, grad_y), result, e.grad_input(), partial);
  });
}

template <class T>
void conv2d_grad_weight(cudaStream_t stream, const ProductPlan& plan, const ConvExtents& e, bool and_bias,
                        const T* grad_y, const T* x, T* grad_weight, T* grad_bias, T* partial) {
  const int taps = e.channels * e.taps();
  const PlanesOperand<T> a{grad_y, e.outputs, Divisor(e.positions())};  // [N, O, P Q]
  const WeightResult<T> result{grad_weight, grad_bias, taps};
  with_word(e, [&]<class Word>() {
    const TurnedPatches<T, Word> b{patches_of<Word>(e, x), taps};
    multiply(stream, plan, a, b, result, e.grad_weight(and_bias), partial);
  });
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
