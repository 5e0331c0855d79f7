// Pooling, and the normalisation of images.

#include <algorithm>
#include <cmath>

#include "tests/core/kernel_twins.h"

namespace stagecoach {
namespace {

using test::Tensors;

const Window kWindows[] = {{1, 1, 0}, {2, 2, 0}, {2, 1, 0}, {3, 2, 0}, {3, 2, 1},
                           {3, 1, 1}, {2, 3, 0}, {4, 2, 2}, {5, 3, 2}};
const Shape kPlanes[] = {{1, 1, 1, 1}, {2, 3, 5, 7}, {1, 37, 4, 6}, {2, 1, 17, 19},
                         {5, 6, 2, 3}, {0, 3, 5, 5}, {7, 40, 8, 8}};

Shape pooled(const Shape& x, const Window& window) {
  return {x[0], x[1], window.positions(x[2]), window.positions(x[3])};
}

class PoolTwins : public test::KernelTwins {
 protected:
  static void expect_pools(const Tensor& x, const Window& window) {
    const Shape y = pooled(x.shape(), window);
    expect_twins({x, test::unset(y, x.dtype()), test::unset(y, DType::int32)},
                 [&](const Kernels& k, Tensors& t) { k.max_pool2d(t[0], window, t[1], t[2]); });
  }
};
STAGECOACH_KERNEL_TWINS(PoolTwins);

/// Calls body(shape, window) for all of them that fit.
template <class Body>
void for_each_pool(const Body& body) {
  for (const Shape& shape : kPlanes) {
    for (const Window& window : kWindows) {
      if (std::min(shape[2], shape[3]) + 2 * window.padding >= window.kernel) {
        SCOPED_TRACE(fmt::format("x {}, kernel {}, stride {}, padding {}", to_string(shape), window.kernel,
                                 window.stride, window.padding));
        body(shape, window);
      }
    }
  }
}

TEST_P(PoolTwins, MaxPool2d) {
  for_each_pool([](const Shape& shape, const Window& window) { expect_pools(random(shape, "x"), window); });
}

// Few different numbers, so nearly every window holds some of its largest twice: the first one wins.
TEST_P(PoolTwins, MaxPool2dAmongEquals) {
  for_each_pool([](const Shape& shape, const Window& window) {
    std::vector<double> values = test::values_of(random(shape, "x"));
    std::transform(values.begin(), values.end(), values.begin(), [](double value) { return std::round(value / 2); });
    expect_pools(test::typed(values, shape, type()), window);
  });
}

TEST_P(PoolTwins, MaxPool2dOfWhatIsNotANumber) {
  for (const Window& window : {Window{2, 2, 0}, Window{3, 1, 0}, Window{3, 2, 1}}) {
    for (std::size_t place = 0; place < 9; ++place) {
      SCOPED_TRACE(fmt::format("kernel {}, place {}", window.kernel, place));
      std::vector<double> values = test::values_of(random({1, 1, 3, 3}, "x"));
      values[place] = std::numeric_limits<double>::quiet_NaN();
      const Tensor x = test::typed(values, {1, 1, 3, 3}, type());
      const Shape y = pooled(x.shape(), window);
      expect_twins({x, Tensor::zeros(y, type()), Tensor::zeros(y, DType::int32)},
                   [&](const Kernels& k, Tensors& t) { k.max_pool2d(t[0], window, t[1], t[2]); });
    }
  }
}

TEST_P(PoolTwins, MaxPool2dGrad) {
  for_each_pool([](const Shape& shape, const Window& window) {
    Tensor y = unset(pooled(shape, window));
    Tensor argmax = test::unset(y.shape(), DType::int32);
    kernels({}).max_pool2d(random(shape, "x"), window, y, argmax);
    expect_twins(
        {random(y.shape(), "grad"), argmax, unset(shape)},
        [&](const Kernels& k, Tensors& t) { k.max_pool2d_grad(t[0], t[1], window, t[2]); },
        window.kernel * window.kernel);
  });
}

TEST_P(PoolTwins, GlobalAveragePool) {
  for (const Shape& shape : kPlanes) {
    SCOPED_TRACE(to_string(shape));
    expect_twins({random(shape, "x"), unset({shape[0], shape[1]})},
                 [](const Kernels& k, Tensors& t) { k.global_average_pool(t[0], t[1]); });
  }
}

TEST_P(PoolTwins, GlobalAveragePoolGrad) {
  for (const Shape& shape : kPlanes) {
    SCOPED_TRACE(to_string(shape));
    expect_twins({random({shape[0], shape[1]}, "grad"), unset(shape)},
                 [](const Kernels& k, Tensors& t) { k.global_average_pool_grad(t[0], t[1]); });
  }
}

// Bytes to float32 whatever the type of the test.
TEST_P(PoolTwins, Normalize) {
  const Normalization settings{{0.1F, 0.5F, 0.9F}, {0.2F, 1, 0.05F}};
  for (const Shape& shape : {Shape{1, 3, 1, 1}, Shape{2, 3, 17, 19}, Shape{5, 3, 4, 4}, Shape{0, 3, 2, 2}}) {
    SCOPED_TRACE(to_string(shape));
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(shape.numel()));
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      pixels[i] = static_cast<std::uint8_t>(i * 7);
    }
    expect_twins({Tensor::from(pixels, shape), test::unset(shape, DType::float32)},
                 [&](const Kernels& k, Tensors& t) { k.normalize(t[0], settings, t[1]); });
  }
}

}  // namespace
}  // namespace stagecoach
