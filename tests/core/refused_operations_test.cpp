// What the operations refuse: every error names the operation and what does not fit.

#include <gtest/gtest.h>

#include <functional>
#include <utility>
#include <vector>

#include "core/ops.h"
#include "tests/support/errors.h"

namespace stagecoach {
namespace {

using test::fails_with;

Tensor cpu_labels(const std::vector<std::int32_t>& labels) {
  return Tensor::from(labels, {static_cast<std::int64_t>(labels.size())});
}

TEST(RefusedOperations, ShapesThatDoNotFit) {
  const auto t = [](const Shape& shape) { return Tensor::zeros(shape); };
  const auto labels = [](std::int64_t count) { return Tensor::zeros({count}, DType::int32); };
  const Tensor image = t({2, 3, 4, 5});
  EXPECT_TRUE(fails_with({"add", "[2, 3]", "[3, 2]"}, [&] { add(t({2, 3}), t({3, 2})); }));
  EXPECT_TRUE(fails_with({"add", "[2, 3]", "[3]"}, [&] { add(t({2, 3}), t({3})); })) << "nothing is broadcast";
  EXPECT_TRUE(fails_with({"linear", "[2, 3]", "[4, 5]"}, [&] { linear(t({2, 3}), t({4, 5})); }));
  EXPECT_TRUE(fails_with({"linear", "[2, 3, 1]"}, [&] { linear(t({2, 3, 1}), t({4, 3})); }));
  EXPECT_TRUE(fails_with({"linear", "[3]", "[4, 3]"}, [&] { linear(t({2, 3}), t({4, 3}), t({3})); }));
  EXPECT_TRUE(fails_with({"conv2d", "[2, 3, 4, 5]", "[1, 2, 3, 3]"}, [&] { conv2d(image, t({1, 2, 3, 3})); }));
  EXPECT_TRUE(fails_with({"conv2d", "[1, 3, 3, 2]"}, [&] { conv2d(image, t({1, 3, 3, 2})); }));
  EXPECT_TRUE(fails_with({"conv2d", "[2]", "[1, 3, 3, 3]"}, [&] { conv2d(image, t({1, 3, 3, 3}), t({2})); }));
  EXPECT_TRUE(fails_with({"conv2d", "[2, 3, 4, 5]", "[1, 3, 5, 5]"}, [&] { conv2d(image, t({1, 3, 5, 5})); }));
  EXPECT_TRUE(fails_with({"conv2d", "stride 0"}, [&] { conv2d(image, t({1, 3, 3, 3}), {}, {0, 0}); }));
  EXPECT_TRUE(fails_with({"conv2d", "padding -1"}, [&] { conv2d(image, t({1, 3, 3, 3}), {}, {1, -1}); }));
  EXPECT_TRUE(fails_with({"max_pool2d", "[2, 3]"}, [&] { max_pool2d(t({2, 3}), {2, 2, 0}); }));
  EXPECT_TRUE(fails_with({"max_pool2d", "[2, 3, 4, 5]", "5"}, [&] { max_pool2d(image, {5, 1, 0}); }));
  EXPECT_TRUE(fails_with({"max_pool2d", "kernel 2", "stride 1", "padding 2"}, [&] { max_pool2d(image, {2, 1, 2}); }));
  EXPECT_TRUE(fails_with({"max_pool2d", "stride 0"}, [&] { max_pool2d(image, {2, 0, 0}); }));
  EXPECT_TRUE(fails_with({"global_average_pool", "[2, 3]"}, [&] { global_average_pool(t({2, 3})); }));
  EXPECT_TRUE(fails_with({"softmax", "[]"}, [&] { softmax(t({})); }));
  EXPECT_TRUE(fails_with({"log_softmax", "[2, 0]"}, [&] { log_softmax(t({2, 0})); }));
  EXPECT_TRUE(fails_with({"cross_entropy", "[2, 3]", "[3]"}, [&] { cross_entropy(t({2, 3}), labels(3)); }));
  EXPECT_TRUE(fails_with({"cross_entropy", "[0, 3]", "at least one sample for a mean"}, [&] {
    cross_entropy(t({0, 3}), labels(0));
  }));
  EXPECT_TRUE(fails_with({"cross_entropy", "[2, 0]"}, [&] { cross_entropy(t({2, 0}), labels(2)); }));
  EXPECT_TRUE(fails_with({"mean_squared_error", "[2]", "[3]"}, [&] { mean_squared_error(t({2}), t({3})); }));
  EXPECT_TRUE(fails_with({"mean_squared_error", "[0]"}, [&] { mean_squared_error(t({0}), t({0})); }));
  EXPECT_TRUE(fails_with({"normalize", "uint8[1, 4, 2, 2]"}, [&] {
    normalize(Tensor::zeros({1, 4, 2, 2}, DType::uint8));
  }));
  EXPECT_TRUE(fails_with({"normalize", "float32[2, 3, 4, 5]"}, [&] { normalize(image); }));
  Tensor count = Tensor::zeros({}, DType::int32);
  EXPECT_TRUE(fails_with({"count_correct", "[2, 3]", "[3]"}, [&] { count_correct(t({2, 3}), labels(3), count); }));
  EXPECT_TRUE(fails_with({"count_correct", "float32[3]"}, [&] { count_correct(t({3}), labels(3), count); }));
  Tensor counts = Tensor::zeros({2}, DType::int32);
  EXPECT_TRUE(fails_with({"count_correct", "int32[2]"}, [&] { count_correct(t({2, 3}), labels(2), counts); }));
}

TEST(RefusedOperations, ShapesOfTransformers) {
  const auto t = [](const Shape& shape) { return Tensor::zeros(shape); };
  const Tensor tokens = t({2, 4, 6});
  EXPECT_TRUE(fails_with({"linear", "[]", "[4, 3]"}, [&] { linear(t({}), t({4, 3})); }));
  EXPECT_TRUE(fails_with({"matmul", "[2, 4, 6]", "[2, 4, 6]"}, [&] { matmul(tokens, tokens); }));
  EXPECT_TRUE(fails_with({"matmul", "[2, 4, 6]", "[6, 3]"}, [&] { matmul(tokens, t({6, 3})); }));
  EXPECT_TRUE(fails_with({"matmul", "[2, 4, 6]", "[3, 6, 3]"}, [&] { matmul(tokens, t({3, 6, 3})); }));
  EXPECT_TRUE(fails_with({"layer_norm", "[2, 4, 6]", "[5]"}, [&] { layer_norm(tokens, t({5}), t({5})); }));
  EXPECT_TRUE(fails_with({"layer_norm", "[6]", "[5]"}, [&] { layer_norm(tokens, t({6}), t({5})); }));
  EXPECT_TRUE(fails_with({"attention", "[2, 6]"}, [&] { attention(t({2, 6}), 1); }));
  EXPECT_TRUE(fails_with({"attention", "[2, 4, 5]"}, [&] { attention(t({2, 4, 5}), 1); }));
  EXPECT_TRUE(fails_with({"attention", "heads", "[2, 4, 6]"}, [&] { attention(tokens, 3); }));
  EXPECT_TRUE(fails_with({"attention", "heads", "[2, 4, 6]"}, [&] { attention(tokens, 0); }));
  EXPECT_TRUE(fails_with({"embedding", "[2]", "[4]"}, [&] { embedding(cpu_labels({0, 1}), t({4})); }));
  EXPECT_TRUE(fails_with({"embedding", "int32", "float32"}, [&] { embedding(t({2}), t({4, 3})); }));
  EXPECT_TRUE(fails_with({"embedding", "got 4 at position 1"}, [&] { embedding(cpu_labels({0, 4}), t({4, 3})); }));
  EXPECT_TRUE(fails_with({"dropout", "[0, 1)", "got", "1"}, [&] { dropout(tokens, {.probability = 1}); }));
  EXPECT_TRUE(fails_with({"transpose", "[3]"}, [&] { transpose(t({3})); }));
  EXPECT_TRUE(fails_with({"token_mean", "[2, 3]"}, [&] { token_mean(t({2, 3})); }));
  EXPECT_TRUE(fails_with({"add_broadcast", "[2, 4, 6]", "[6]"}, [&] { add_broadcast(tokens, t({6})); }));
}

TEST(RefusedOperations, BatchNormShapes) {
  const Tensor two = Tensor::zeros({2});
  const Tensor three = Tensor::zeros({3});
  const Tensor x = Tensor::zeros({4, 2});
  EXPECT_TRUE(fails_with({"batch_norm", "[4, 2, 1]"}, [&] {
    batch_norm(Tensor::zeros({4, 2, 1}), two, two, two, two);
  }));
  EXPECT_TRUE(fails_with({"batch_norm", "[4, 2]", "3"}, [&] { batch_norm(x, three, two, two, two); }));
  EXPECT_TRUE(fails_with({"batch_norm", "[4, 2]", "3"}, [&] { batch_norm(x, two, three, two, two); }));
  EXPECT_TRUE(fails_with({"batch_norm", "[4, 2]", "3"}, [&] { batch_norm(x, two, two, three, two); }));
  EXPECT_TRUE(fails_with({"batch_norm", "[4, 2]", "3"}, [&] { batch_norm(x, two, two, two, three); }));
  EXPECT_TRUE(fails_with({"batch_norm", "undefined"}, [&] { batch_norm(x, {}, two, two, two); }));
  EXPECT_TRUE(fails_with({"batch_norm", "at least two values", "[1, 2]"},
                         [&] { batch_norm(x.narrow(0, 1), two, two, two, two); }));
  const BatchNormSettings others_are_empty{.sum_over_ranks = [](Tensor&) {}};
  EXPECT_TRUE(fails_with({"batch_norm", "at least two values", "[1, 2]"},
                         [&] { batch_norm(x.narrow(0, 1), two, two, two, two, others_are_empty); }));
  EXPECT_TRUE(fails_with({"batch_norm", "at least two values", "got 0", "[0, 2]"},
                         [&] { batch_norm(x.narrow(0, 0), two, two, two, two, others_are_empty); }));
}

TEST(RefusedOperations, MixedTypesAndDevices) {
  const Tensor x = Tensor::zeros({2, 2});
  const Tensor doubles = Tensor::zeros({2, 2}, DType::float64);
  const Tensor elsewhere = Tensor::zeros({2, 2}, DType::float32, {DeviceType::cpu, 3});
  const Tensor bias = Tensor::zeros({2}, DType::float64);
  EXPECT_TRUE(fails_with({"add", "float32", "float64"}, [&] { add(x, doubles); }));
  EXPECT_TRUE(fails_with({"add", "cpu:0", "cpu:3"}, [&] { add(x, elsewhere); }));
  EXPECT_TRUE(fails_with({"linear", "float32", "float64"}, [&] { linear(x, doubles); }));
  EXPECT_TRUE(fails_with({"linear", "float32", "float64[2]"}, [&] { linear(x, x, bias); }));
  EXPECT_TRUE(fails_with({"conv2d", "cpu:0", "cpu:3"}, [&] {
    conv2d(x.reshape({1, 1, 2, 2}), elsewhere.reshape({1, 1, 2, 2}));
  }));
  EXPECT_TRUE(fails_with({"mean_squared_error", "cpu:0", "cpu:3"}, [&] { mean_squared_error(x, elsewhere); }));
  EXPECT_TRUE(fails_with({"cross_entropy", "int32", "float32[2]"}, [&] { cross_entropy(x, Tensor::zeros({2})); }));
  EXPECT_TRUE(
      fails_with({"cross_entropy", "cpu:3"}, [&] { cross_entropy(elsewhere, Tensor::zeros({2}, DType::int32)); }));
  const Tensor two = Tensor::zeros({2});
  EXPECT_TRUE(fails_with({"batch_norm", "float32", "float64"}, [&] { batch_norm(x, two, bias, two, two); }));
}

TEST(RefusedOperations, WholeNumbers) {
  const Tensor x = Tensor::zeros({2, 2}, DType::int32);
  const std::pair<const char*, std::function<void()>> calls[] = {
      {"add", [&] { add(x, x); }},
      {"scale", [&] { scale(x, 2); }},
      {"relu", [&] { relu(x); }},
      {"linear", [&] { linear(x, x); }},
      {"conv2d",
       [&] {
         conv2d(x.reshape({1, 1, 2, 2}), x.reshape({1, 1, 2, 2}));
       }},
      {"max_pool2d",
       [&] {
         max_pool2d(x.reshape({1, 1, 2, 2}), {2, 2, 0});
       }},
      {"global_average_pool",
       [&] {
         global_average_pool(x.reshape({1, 1, 2, 2}));
       }},
      {"softmax", [&] { softmax(x); }},
      {"log_softmax", [&] { log_softmax(x); }},
      {"matmul", [&] { matmul(x, x); }},
      {"gelu", [&] { gelu(x); }},
      {"layer_norm", [&] { layer_norm(x, Tensor::zeros({2}, DType::int32), Tensor::zeros({2}, DType::int32)); }},
      {"attention",
       [&] {
         attention(Tensor::zeros({1, 1, 3}, DType::int32), 1);
       }},
      {"transpose", [&] { transpose(x); }},
      {"token_mean",
       [&] {
         token_mean(x.reshape({1, 2, 2}));
       }},
      {"add_broadcast", [&] { add_broadcast(x, Tensor::zeros({2}, DType::int32)); }},
      {"cross_entropy",
       [&] {
         cross_entropy(x, cpu_labels({0, 0}));
       }},
  };
  for (const auto& [name, call] : calls) {
    EXPECT_TRUE(fails_with({name, "int32"}, call)) << name;
  }
}

TEST(RefusedOperations, LabelsOutsideTheClasses) {
  const Tensor logits = Tensor::zeros({3, 4});
  EXPECT_TRUE(fails_with({"cross_entropy", "got 4 for sample 1", "sample 1"}, [&] {
    cross_entropy(logits, cpu_labels({0, 4, 0}));
  }));
  EXPECT_TRUE(fails_with({"cross_entropy", "got -1 for sample 2", "sample 2"}, [&] {
    cross_entropy(logits, cpu_labels({0, 3, -1}));
  }));
}

TEST(RefusedOperations, AnUndefinedInput) {
  EXPECT_TRUE(fails_with({"undefined"}, [] { relu(Tensor()); }));
  EXPECT_TRUE(fails_with({"undefined"}, [] { add(Tensor(), Tensor()); }));
}

}  // namespace
}  // namespace stagecoach
