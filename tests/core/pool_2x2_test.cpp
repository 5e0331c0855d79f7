// Max pooling of 2 x 2 windows on the CPU beside a plain loop, for all lengths of a row up to several vectors.

#include <cmath>
#include <cstring>
#include <limits>

#include "core/kernels/kernels.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

const Window kWindow{2, 2, 0};

/// Planes with few different numbers, so that windows have several largest; every eleventh is NaN.
template <class T>
Tensor planes(std::int64_t height, std::int64_t width) {
  Tensor x = test::random_tensor({2, 3, height, width}, "x", dtype_of<T>);
  T* values = x.template mutable_data<T>();
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    values[i] = i % 11 == 7 ? std::numeric_limits<T>::quiet_NaN() : std::round(values[i]);
  }
  return x;
}

/// The index of the largest pixel of window (p, q): the first among equals, the last NaN.
template <class T>
std::int64_t largest(const T* plane, std::int64_t width, std::int64_t p, std::int64_t q) {
  const std::int64_t at = 2 * (p * width + q);
  std::int64_t best = at;
  for (const std::int64_t place : {at + 1, at + width, at + width + 1}) {
    if (plane[place] > plane[best] || std::isnan(plane[place])) {
      best = place;
    }
  }
  return best;
}

template <class T>
void expect_plain_loops(std::int64_t height, std::int64_t width) {
  SCOPED_TRACE(fmt::format("{} x {}, {}", height, width, name_of(dtype_of<T>)));
  const std::int64_t rows = height / 2;
  const std::int64_t columns = width / 2;
  const Tensor x = planes<T>(height, width);
  Tensor y = Tensor::full({2, 3, rows, columns}, -7, dtype_of<T>);
  Tensor argmax = Tensor::full({2, 3, rows, columns}, -7, DType::int32);
  kernels({}).max_pool2d(x, kWindow, y, argmax);
  const Tensor grad_y = test::random_tensor(y.shape(), "grad", dtype_of<T>);
  Tensor grad_x = Tensor::full(x.shape(), -7, dtype_of<T>);
  kernels({}).max_pool2d_grad(grad_y, argmax, kWindow, grad_x);

  Tensor wanted_grad = Tensor::zeros(x.shape(), dtype_of<T>);
  std::int64_t output = 0;
  for (std::int64_t plane = 0; plane < 6; ++plane) {
    const T* pixels = x.data<T>() + plane * height * width;
    for (std::int64_t p = 0; p < rows; ++p) {
      for (std::int64_t q = 0; q < columns; ++q, ++output) {
        const std::int64_t best = largest(pixels, width, p, q);
        ASSERT_EQ(argmax.data<std::int32_t>()[output], best) << "plane " << plane << ", window " << p << ", " << q;
        ASSERT_EQ(std::memcmp(&y.data<T>()[output], &pixels[best], sizeof(T)), 0);
        wanted_grad.template mutable_data<T>()[plane * height * width + best] = grad_y.data<T>()[output];
      }
    }
  }
  EXPECT_EQ(std::memcmp(grad_x.data<T>(), wanted_grad.data<T>(), static_cast<std::size_t>(grad_x.bytes())), 0);
}

TEST(Pool2x2, IsThePlainLoopForEveryLengthOfARow) {
  for (std::int64_t width = 2; width <= 71; ++width) {
    for (const std::int64_t height : {2, 5}) {
      expect_plain_loops<float>(height, width);
      expect_plain_loops<double>(height, width);
    }
  }
}

}  // namespace
}  // namespace stagecoach
