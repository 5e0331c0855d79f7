// What the operations compute, against the formulas of core/ops.h written out.

#include "tests/core/operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/autograd/backward.h"

namespace stagecoach {
namespace {

using test::close;
using test::labels_of;
using test::of;
using test::Operations;
using test::Values;
using test::values_of;

const double kNotANumber = std::numeric_limits<double>::quiet_NaN();

INSTANTIATE_TEST_SUITE_P(Types, Operations, test::devices_and_types(), test::device_and_type);

TEST_P(Operations, Add) {
  const Tensor a = random({3, 2, 11}, "a");
  const Tensor b = random({3, 2, 11}, "b");
  Values expected = values_of(a);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expected[i] += values_of(b)[i];
  }
  EXPECT_TRUE(near(add(a, b), expected, {3, 2, 11}));
}

TEST_P(Operations, Scale) {
  const Tensor x = random({5, 7}, "x");
  Values expected = values_of(x);
  for (double& value : expected) {
    value *= -2.5;
  }
  EXPECT_TRUE(near(scale(x, -2.5), expected, {5, 7}));
}

TEST_P(Operations, Relu) {
  EXPECT_TRUE(near(relu(typed({-2, -0.5, 0, 0.5, 2, 1e30, -1e30}, {7})), {0, 0, 0, 0.5, 2, 1e30, 0}, {7}));
}

// A diverged run must be seen, not turned into zeros.
TEST_P(Operations, ReluPassesOnWhatIsNotANumber) {
  const Values y = values_of(relu(typed({-1, kNotANumber, 1, -kNotANumber}, {4})));
  EXPECT_EQ(y[0], 0);
  EXPECT_TRUE(std::isnan(y[1]));
  EXPECT_EQ(y[2], 1);
  EXPECT_TRUE(std::isnan(y[3]));
}

/// The largest of each window of one plane [H, W].
Values pooled(const double* plane, std::int64_t height, std::int64_t width, const Window& window) {
  Values largest;
  for (std::int64_t top = -window.padding; top + window.kernel <= height + window.padding; top += window.stride) {
    for (std::int64_t left = -window.padding; left + window.kernel <= width + window.padding; left += window.stride) {
      largest.push_back(-std::numeric_limits<double>::infinity());
      for (std::int64_t h = std::max<std::int64_t>(top, 0); h < std::min(top + window.kernel, height); ++h) {
        for (std::int64_t w = std::max<std::int64_t>(left, 0); w < std::min(left + window.kernel, width); ++w) {
          largest.back() = std::max(largest.back(), plane[h * width + w]);
        }
      }
    }
  }
  return largest;
}

TEST_P(Operations, MaxPool2d) {
  const Window windows[] = {{1, 1, 0}, {2, 2, 0}, {2, 1, 0}, {3, 2, 0}, {3, 2, 1}, {3, 3, 1}, {2, 3, 0}, {4, 2, 2}};
  for (const Window& window : windows) {
    for (const auto& [height, width] : {std::pair{4, 4}, {5, 7}, {6, 5}, {4, 9}}) {
      SCOPED_TRACE(fmt::format("{} x {}, kernel {}, stride {}, padding {}", height, width, window.kernel, window.stride,
                               window.padding));
      // All negative, so that a padding counted as 0 would win.
      Values below = values_of(random({2, 3, height, width}, "x"));
      std::transform(below.begin(), below.end(), below.begin(), [](double value) { return -1 - std::abs(value); });
      const Tensor x = typed(below, {2, 3, height, width});
      const Values in = values_of(x);
      Values expected;
      for (int plane = 0; plane < 6; ++plane) {
        const Values part = pooled(in.data() + plane * height * width, height, width, window);
        expected.insert(expected.end(), part.begin(), part.end());
      }
      EXPECT_TRUE(near(max_pool2d(x, window), expected, {2, 3, window.positions(height), window.positions(width)}));
    }
  }
}

// Wherever in its window it is, in the code for 2 x 2 windows and in that for all others.
TEST_P(Operations, MaxPool2dPassesOnWhatIsNotANumber) {
  for (const Window& window : {Window{2, 2, 0}, Window{3, 1, 0}, Window{3, 2, 1}}) {
    const std::int64_t size = window.kernel - window.padding;  // exactly one window
    for (std::int64_t place = 0; place < size * size; ++place) {
      Values plane(static_cast<std::size_t>(size * size), 1);
      plane[static_cast<std::size_t>(place)] = kNotANumber;
      const Values y = values_of(max_pool2d(typed(plane, {1, 1, size, size}), window));
      EXPECT_TRUE(std::isnan(y[0])) << "kernel " << window.kernel << ", place " << place << " gave " << y[0];
    }
  }
}

TEST_P(Operations, GlobalAveragePool) {
  const Tensor x = random({2, 3, 5, 4}, "x");
  const Values in = values_of(x);
  Values expected(6);
  for (std::size_t i = 0; i < in.size(); ++i) {
    expected[i / 20] += in[i] / 20;
  }
  EXPECT_TRUE(near(global_average_pool(x), expected, {2, 3}));
}

TEST_P(Operations, Flatten) {
  const Tensor x = random({2, 3, 4, 5}, "x");
  EXPECT_TRUE(near(flatten(x), values_of(x), {2, 60}));
  EXPECT_EQ(flatten(random({7}, "x")).shape(), (Shape{7, 1}));
}

/// exp(x[n, c]) / sum over c, row by row.
Values softmax_of(const Values& x, std::size_t classes) {
  Values y(x.size());
  for (std::size_t row = 0; row < x.size(); row += classes) {
    double sum = 0;
    for (std::size_t c = row; c < row + classes; ++c) {
      sum += std::exp(x[c]);
    }
    for (std::size_t c = row; c < row + classes; ++c) {
      y[c] = std::exp(x[c]) / sum;
    }
  }
  return y;
}

Values logs_of(Values values) {
  std::transform(values.begin(), values.end(), values.begin(), [](double value) { return std::log(value); });
  return values;
}

TEST_P(Operations, Softmax) {
  const Tensor x = random({9, 5}, "x");
  EXPECT_TRUE(near(softmax(x), softmax_of(values_of(x), 5), {9, 5}));
}

TEST_P(Operations, LogSoftmax) {
  const Tensor x = random({9, 5}, "x");
  EXPECT_TRUE(near(log_softmax(x), logs_of(softmax_of(values_of(x), 5)), {9, 5}));
}

TEST_P(Operations, SoftmaxDoesNotOverflow) {
  const Tensor x = typed({1e4, 1e4, -1e4, -1e4, -1e4, -1e4}, {2, 3});
  const double third = 1.0 / 3;
  EXPECT_TRUE(close(softmax(x), of({0.5, 0.5, 0, third, third, third}, {2, 3}), 1e-3, 0));
  const double half = -std::log(2);
  EXPECT_TRUE(
      close(log_softmax(x), of({half, half, -2e4 + half, -std::log(3), -std::log(3), -std::log(3)}, {2, 3}), 1e-3, 0));
}

// Only differences within a row count. 1e4 has an ulp of 0.001 in float32, so its sum with a logarithm must not be
// formed.
TEST_P(Operations, SoftmaxKeepsItsDigitsBesideALargeOffset) {
  const Values small{0, 1, -2, 0.5, 3, 3};
  Values large = small;
  for (double& value : large) {
    value += 1e4;  // exact in both types
  }
  const Values expected = softmax_of(small, 3);
  EXPECT_TRUE(near(softmax(typed(large, {2, 3})), expected, {2, 3}));
  EXPECT_TRUE(near(log_softmax(typed(large, {2, 3})), logs_of(expected), {2, 3}));
  EXPECT_TRUE(near(cross_entropy(typed(large, {2, 3}), labels_of({1, 0}, device()), Reduction::sum),
                   {-std::log(expected[1]) - std::log(expected[3])}, {}));
}

TEST_P(Operations, CrossEntropy) {
  const Tensor logits = random({6, 4}, "logits");
  const std::vector<std::int32_t> labels{3, 0, 1, 1, 2, 3};
  const Values probabilities = softmax_of(values_of(logits), 4);
  double sum = 0;
  for (std::size_t n = 0; n < labels.size(); ++n) {
    sum -= std::log(probabilities[n * 4 + static_cast<std::size_t>(labels[n])]);
  }
  EXPECT_TRUE(near(cross_entropy(logits, labels_of(labels, device()), Reduction::sum), {sum}, {}));
  EXPECT_TRUE(near(cross_entropy(logits, labels_of(labels, device()), Reduction::mean), {sum / 6}, {}));
  EXPECT_TRUE(near(cross_entropy(logits, labels_of(labels, device())), {sum / 6}, {})) << "the mean is the default";
}

// A sample with several labels counts with their mean, so the sum over samples divided by their number is the mean.
TEST_P(Operations, CrossEntropyOfSeveralLabelsPerSample) {
  const Tensor rows = random({6, 4}, "logits").set_requires_grad(true);
  const Tensor labels = labels_of({3, 0, 1, 1, 2, 3}, device());
  const Tensor mean = cross_entropy(rows, labels);
  backward(mean);
  const Tensor samples = rows.detach().reshape({2, 3, 4}).set_requires_grad(true);
  const Tensor sum = cross_entropy(samples, labels.reshape({2, 3}), Reduction::sum);
  EXPECT_NEAR(sum.item(), 2 * mean.item(), 1e-6);
  EXPECT_NEAR(cross_entropy(samples, labels.reshape({2, 3})).item(), mean.item(), 1e-6);
  backward(sum);
  EXPECT_TRUE(close(samples.grad().reshape({6, 4}), scale(rows.grad(), 2), 1e-6, 1e-7));
}

TEST_P(Operations, CrossEntropyDoesNotOverflow) {
  EXPECT_TRUE(
      near(cross_entropy(typed({5000, -5000, -5000, 5000}, {2, 2}), labels_of({0, 0}, device()), Reduction::sum),
           {10000}, {}));
}

TEST_P(Operations, CrossEntropyOfWhatIsNotANumberIsNone) {
  for (std::size_t place = 0; place < 3; ++place) {
    Values logits(6, 1);
    logits[3 + place] = kNotANumber;
    EXPECT_TRUE(std::isnan(cross_entropy(typed(logits, {2, 3}), labels_of({0, 0}, device())).item()))
        << "class " << place;
  }
}

TEST_P(Operations, MeanSquaredError) {
  const Tensor a = random({3, 5}, "a");
  const Tensor b = random({3, 5}, "b");
  double sum = 0;
  for (std::size_t i = 0; i < 15; ++i) {
    sum += (values_of(a)[i] - values_of(b)[i]) * (values_of(a)[i] - values_of(b)[i]);
  }
  EXPECT_TRUE(near(mean_squared_error(a, b, Reduction::sum), {sum}, {}));
  EXPECT_TRUE(near(mean_squared_error(a, b, Reduction::mean), {sum / 15}, {}));
  EXPECT_TRUE(near(mean_squared_error(a, b), {sum / 15}, {})) << "the mean is the default";
}

class Normalize : public ::testing::TestWithParam<Device> {};
INSTANTIATE_TEST_SUITE_P(Devices, Normalize, ::testing::ValuesIn(test::devices()), test::device_name);

TEST_P(Normalize, IsTheFormula) {
  std::vector<std::uint8_t> pixels(2 * 3 * 16 * 9);
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = static_cast<std::uint8_t>(i * 7);  // takes every value
  }
  const Normalization settings{{0.1F, 0.5F, 0.9F}, {0.2F, 1, 0.05F}};
  Values expected;
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    const std::size_t c = i / 144 % 3;
    expected.push_back((pixels[i] / 255.0 - settings.mean[c]) / settings.deviation[c]);
  }
  const Tensor y = normalize(Tensor::from(pixels, {2, 3, 16, 9}, GetParam()), settings);
  EXPECT_EQ(y.dtype(), DType::float32);
  EXPECT_TRUE(close(y, of(expected, {2, 3, 16, 9}), 3e-6, 1e-6));
}

TEST_P(Normalize, SpreadsOverMinusOneToOneByDefault) {
  const Tensor y = normalize(Tensor::from(std::vector<std::uint8_t>{0, 255, 51}, {1, 3, 1, 1}, GetParam()));
  EXPECT_TRUE(close(y, of({-1, 1, -0.6}, {1, 3, 1, 1}), 1e-6, 0));
}

TEST_P(Operations, CountCorrectAddsToTheCount) {
  const Tensor logits = typed({1, 2, 3,     // class 2
                               -1, -2, -3,  // class 0
                               0, 5, 4,     // class 1
                               9, 8, 7},    // class 0
                              {4, 3});
  Tensor count = Tensor::full({}, 10, DType::int32, device());
  count_correct(logits, labels_of({2, 0, 1, 0}, device()), count);
  EXPECT_EQ(count.item(), 14);
  count_correct(logits, labels_of({2, 1, 0, 2}, device()), count);
  EXPECT_EQ(count.item(), 15);
  count_correct(logits.narrow(0, 0), labels_of({}, device()), count);
  EXPECT_EQ(count.item(), 15);
  count_correct(labels_of({2, 0, 1, 0}, device()), labels_of({2, 1, 1, 2}, device()), count);  // predicted classes
  EXPECT_EQ(count.item(), 17);
  count_correct(logits.reshape({2, 2, 3}), labels_of({2, 0, 1, 2}, device()).reshape({2, 2}), count);
  EXPECT_EQ(count.item(), 20);
}

}  // namespace
}  // namespace stagecoach
