// Softmax, losses and the count of right answers.

#include <cmath>

#include "tests/core/kernel_twins.h"

namespace stagecoach {
namespace {

using test::Tensors;

class RowTwins : public test::KernelTwins {};
STAGECOACH_KERNEL_TWINS(RowTwins);

const Shape kRowShapes[] = {{1, 1}, {1, 7}, {5, 1}, {37, 10}, {3, 31}, {2, 33}, {5, 256}, {3, 1009}, {1009, 3}, {0, 5}};

/// Calls body(shape) for all of kRowShapes.
template <class Body>
void for_each_rows(const Body& body) {
  for (const Shape& shape : kRowShapes) {
    SCOPED_TRACE(to_string(shape));
    body(shape);
  }
}

/// What the CPU's kernel makes of random numbers.
Tensor forward_of(const Tensor& x, void (*Kernels::*kernel)(const Tensor& x, Tensor& y)) {
  Tensor y = x.clone();
  (kernels({}).*kernel)(x, y);
  return y;
}

TEST_P(RowTwins, Softmax) {
  for_each_rows([](const Shape& shape) {
    expect_twins({random(shape, "x"), unset(shape)}, [](const Kernels& k, Tensors& t) { k.softmax(t[0], t[1]); });
  });
}

TEST_P(RowTwins, SoftmaxGrad) {
  for_each_rows([](const Shape& shape) {
    expect_twins(
        {random(shape, "grad"), forward_of(random(shape, "x"), &Kernels::softmax), unset(shape)},
        [](const Kernels& k, Tensors& t) { k.softmax_grad(t[0], t[1], t[2]); }, shape[1]);
  });
}

TEST_P(RowTwins, LogSoftmax) {
  for_each_rows([](const Shape& shape) {
    expect_twins({random(shape, "x"), unset(shape)}, [](const Kernels& k, Tensors& t) { k.log_softmax(t[0], t[1]); });
  });
}

TEST_P(RowTwins, LogSoftmaxGrad) {
  for_each_rows([](const Shape& shape) {
    expect_twins(
        {random(shape, "grad"), forward_of(random(shape, "x"), &Kernels::log_softmax), unset(shape)},
        [](const Kernels& k, Tensors& t) { k.log_softmax_grad(t[0], t[1], t[2]); }, shape[1]);
  });
}

// Rows far apart: exp of them would overflow, or be 0.
TEST_P(RowTwins, SoftmaxOfLargeNumbers) {
  const Tensor x = test::typed(std::vector<double>{1e4, 1e4, -1e4, -3e4, -3e4, -3e4, 0, 500, -500}, {3, 3}, type());
  expect_twins({x, unset({3, 3})}, [](const Kernels& k, Tensors& t) { k.softmax(t[0], t[1]); });
  expect_twins({x, unset({3, 3})}, [](const Kernels& k, Tensors& t) { k.log_softmax(t[0], t[1]); });
}

TEST_P(RowTwins, CrossEntropy) {
  for_each_rows([](const Shape& shape) {
    expect_twins({random(shape, "x"), test::random_labels(shape[0], shape[1]), unset({}), unset(shape)},
                 [](const Kernels& k, Tensors& t) { k.cross_entropy(t[0], t[1], 0.25, t[2], t[3]); });
  });
}

TEST_P(RowTwins, CrossEntropyGrad) {
  for_each_rows([](const Shape& shape) {
    expect_twins({random({}, "grad"), forward_of(random(shape, "x"), &Kernels::softmax),
                  test::random_labels(shape[0], shape[1]), unset(shape)},
                 [](const Kernels& k, Tensors& t) { k.cross_entropy_grad(t[0], t[1], t[2], 0.25, t[3]); });
  });
}

// A diverged run must be seen: wherever it is, the loss is NaN.
TEST_P(RowTwins, CrossEntropyOfWhatIsNotANumber) {
  for (const Shape& shape : {Shape{3, 100}, Shape{3, 300}}) {
    for (const std::size_t place : {0, 4, 299}) {
      std::vector<double> logits = test::values_of(random(shape, "x"));
      logits[place] = std::numeric_limits<double>::quiet_NaN();
      expect_twins({test::typed(logits, shape, type()), test::labels_of({5, 6, 7}), Tensor::zeros({}, type()),
                    Tensor::zeros(shape, type())},
                   [](const Kernels& k, Tensors& t) { k.cross_entropy(t[0], t[1], 1, t[2], t[3]); });
    }
  }
}

// The slice has the classes from 5 on, of 5 + C + 3.
TEST_P(RowTwins, ClassStatistics) {
  for_each_rows([](const Shape& shape) {
    expect_twins(
        {random(shape, "x"), test::random_labels(shape[0], 5 + shape[1] + 3), unset({shape[0], 4})},
        [&](const Kernels& k, Tensors& t) { k.class_statistics(t[0], t[1], 5, 5 + shape[1] + 3, t[2]); }, shape[1]);
  });
}

// Few different logits: the class is the first of the largest.
TEST_P(RowTwins, ClassStatisticsAmongEquals) {
  std::vector<double> logits = test::values_of(random({257, 40}, "x"));
  for (double& logit : logits) {
    logit = std::round(logit);
  }
  expect_twins(
      {test::typed(logits, {257, 40}, type()), test::random_labels(257, 80), unset({257, 4})},
      [](const Kernels& k, Tensors& t) { k.class_statistics(t[0], t[1], 40, 80, t[2]); }, 40);
}

TEST_P(RowTwins, CombinedCrossEntropy) {
  for (const Shape& shape : {Shape{1, 1, 4}, {2, 5, 4}, {3, 300, 4}, {128, 7, 4}, {2, 0, 4}}) {
    SCOPED_TRACE(to_string(shape));
    const std::int64_t samples = shape[1];
    // Statistics are a largest logit, its class, a sum and the label's logit: all of them positive here.
    expect_twins(
        {positive(shape, "statistics"), unset({}), unset({samples, 2}), test::unset({samples}, DType::int32)},
        [](const Kernels& k, Tensors& t) { k.combined_cross_entropy(t[0], 0.25, t[1], t[2], t[3]); }, shape[0]);
  }
}

TEST_P(RowTwins, ClassSliceGrad) {
  for_each_rows([](const Shape& shape) {
    expect_twins({random({}, "grad"), random(shape, "x"), test::random_labels(shape[0], 5 + shape[1] + 3),
                  positive({shape[0], 2}, "normalizers"), unset(shape)},
                 [](const Kernels& k, Tensors& t) { k.class_slice_grad(t[0], t[1], t[2], t[3], 5, 0.25, t[4]); });
  });
}

const Shape kAllShapes[] = {{}, {1}, {37}, {3, 5, 7}, {255}, {257}, {1009}, {3, 1021}, {0}};

TEST_P(RowTwins, SquaredError) {
  for (const Shape& shape : kAllShapes) {
    SCOPED_TRACE(to_string(shape));
    expect_twins({random(shape, "a"), random(shape, "b"), unset({})},
                 [](const Kernels& k, Tensors& t) { k.squared_error(t[0], t[1], 0.5, t[2]); });
  }
}

TEST_P(RowTwins, SquaredErrorGrad) {
  for (const Shape& shape : kAllShapes) {
    SCOPED_TRACE(to_string(shape));
    expect_twins({random({}, "grad"), random(shape, "a"), random(shape, "b"), unset(shape)},
                 [](const Kernels& k, Tensors& t) { k.squared_error_grad(t[0], t[1], t[2], 0.5, t[3]); });
  }
}

TEST_P(RowTwins, CountCorrect) {
  for_each_rows([](const Shape& shape) {
    expect_twins({random(shape, "x"), test::random_labels(shape[0], shape[1]), Tensor::full({}, 10, DType::int32)},
                 [](const Kernels& k, Tensors& t) {
                   k.count_correct(t[0], t[1], t[2]);
                   k.count_correct(t[0], t[1], t[2]);
                 });
  });
}

TEST_P(RowTwins, CountEqual) {
  for (const std::int64_t samples : {0, 1, 37, 255, 1009}) {
    expect_twins({test::random_labels(samples, 3), test::labels_of(std::vector<std::int32_t>(samples, 1)),
                  Tensor::full({}, 10, DType::int32)},
                 [](const Kernels& k, Tensors& t) { k.count_equal(t[0], t[1], t[2]); });
  }
}

TEST_P(RowTwins, Gather) {
  const Tensor crops = Tensor::from(
      std::vector<std::int32_t>{2, 0, 0, 0, 4, 1, -2, 1, 0, -3, 1, 0, 4, 5, 0, 1, 1, 0, 7, 0, 3, -1, -6, 1}, {6, 4});
  for (const Shape& sample : {Shape{1, 1, 1}, Shape{1, 1, 7}, Shape{3, 5, 7}, Shape{2, 31, 33}}) {
    const Shape rows{5, sample[0], sample[1], sample[2]};
    expect_twins({random(rows, "rows"), crops, unset(rows.with(0, 6))},
                 [](const Kernels& k, Tensors& t) { k.gather(t[0], t[1], t[2]); });
    const Tensor bytes = test::labels_of(std::vector<std::int32_t>(rows.numel(), 0x01020304));
    expect_twins({bytes.reshape(rows), crops, Tensor::zeros(rows.with(0, 6), DType::int32)},
                 [](const Kernels& k, Tensors& t) { k.gather(t[0], t[1], t[2]); });
  }
}

// Among equals the first one counts: few different logits, so nearly every row has them.
TEST_P(RowTwins, CountCorrectAmongEquals) {
  std::vector<double> logits = test::values_of(random({257, 40}, "x"));
  for (double& logit : logits) {
    logit = std::round(logit);
  }
  for (const std::int32_t label : {0, 1, 5, 33}) {
    const Tensor labels = test::labels_of(std::vector<std::int32_t>(257, label));
    expect_twins({test::typed(logits, {257, 40}, type()), labels, Tensor::zeros({}, DType::int32)},
                 [](const Kernels& k, Tensors& t) { k.count_correct(t[0], t[1], t[2]); });
  }
}

}  // namespace
}  // namespace stagecoach
