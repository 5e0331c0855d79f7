// The operations of transformers: what they compute, against the formulas of core/ops.h written out, and their
// gradients against finite differences.

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/autograd/backward.h"
#include "core/replay.h"
#include "tests/core/operations.h"
#include "tests/support/errors.h"
#include "tests/support/finite_differences.h"

namespace stagecoach {
namespace {

using test::check_gradients;
using test::random_tensor;
using test::same_bytes;
using test::Values;
using test::values_of;
using Inputs = std::vector<Tensor>;

class TransformerOperations : public test::Operations {};
INSTANTIATE_TEST_SUITE_P(Types, TransformerOperations, test::devices_and_types(), test::device_and_type);

TEST_P(TransformerOperations, Gelu) {
  const Values at{-3, -1, -0.5, 0, 0.5, 1, 3};
  Values exact;
  Values approximate;
  for (const double x : at) {
    exact.push_back(x / 2 * (1 + std::erf(x / std::sqrt(2))));
    approximate.push_back(x / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1)) * (x + 0.044715 * x * x * x))));
  }
  EXPECT_TRUE(near(gelu(typed(at, {7}), GeluForm::exact), exact, {7}));
  EXPECT_TRUE(near(gelu(typed(at, {7})), exact, {7})) << "the exact form is the default";
  EXPECT_TRUE(near(gelu(typed(at, {7}), GeluForm::tanh), approximate, {7}));
}

TEST_P(TransformerOperations, LayerNorm) {
  const Tensor x = random({2, 3, 5}, "x");
  const Tensor weight = random({5}, "weight");
  const Tensor bias = random({5}, "bias");
  const Values in = values_of(x);
  Values expected;
  for (std::size_t row = 0; row < in.size(); row += 5) {
    double mean = 0;
    double variance = 0;
    for (std::size_t c = 0; c < 5; ++c) {
      mean += in[row + c] / 5;
    }
    for (std::size_t c = 0; c < 5; ++c) {
      variance += (in[row + c] - mean) * (in[row + c] - mean) / 5;
    }
    for (std::size_t c = 0; c < 5; ++c) {
      expected.push_back((in[row + c] - mean) / std::sqrt(variance + 0.1) * values_of(weight)[c] + values_of(bias)[c]);
    }
  }
  EXPECT_TRUE(near(layer_norm(x, weight, bias, 0.1), expected, {2, 3, 5}));
}

TEST_P(TransformerOperations, Matmul) {
  const Tensor a = typed({1, 2, 3, 4, 5, 6, -1, 0, 2, 1, 1, 1}, {2, 2, 3});
  const Tensor b = typed({1, 0, 0, 1, 2, -1, 3, 1, 1, 2, 0, 5}, {2, 3, 2});
  EXPECT_TRUE(near(matmul(a, b), {7, -1, 16, -1, -3, 9, 4, 8}, {2, 2, 2}));
}

TEST_P(TransformerOperations, Transpose) {
  const Tensor x = typed({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {2, 2, 3});
  EXPECT_TRUE(near(transpose(x), {1, 4, 2, 5, 3, 6, 7, 10, 8, 11, 9, 12}, {2, 3, 2}));
}

TEST_P(TransformerOperations, AddBroadcastAndTokenMean) {
  const Tensor x = typed({1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2});
  EXPECT_TRUE(near(add_broadcast(x, typed({10, 20, 30, 40}, {2, 2})), {11, 22, 33, 44, 15, 26, 37, 48}, {2, 2, 2}));
  EXPECT_TRUE(near(token_mean(x), {2, 3, 6, 7}, {2, 2}));
}

/// The rows of all parts, token by token: [N, T, D] each, to [N, T, the sum of D].
Tensor side_by_side(const Inputs& parts) {
  const Shape shape = parts[0].shape();
  Values all;
  for (std::int64_t token = 0; token < shape[0] * shape[1]; ++token) {
    for (const Tensor& part : parts) {
      const Values row = values_of(part.reshape({-1, shape[2]}).narrow(token, 1));
      all.insert(all.end(), row.begin(), row.end());
    }
  }
  return test::typed(all, shape.with(2, static_cast<std::int64_t>(parts.size()) * shape[2]), parts[0].dtype(),
                     parts[0].device());
}

// A head is softmax(q k^T / sqrt(D)) v; several heads are side by side in q, k, v and the result.
TEST_P(TransformerOperations, Attention) {
  const Shape shape{3, 7, 4};
  Inputs q, k, v, y;
  for (const char* head : {"first", "second"}) {
    q.push_back(random(shape, (std::string("q of the ") + head).c_str()));
    k.push_back(random(shape, (std::string("k of the ") + head).c_str()));
    v.push_back(random(shape, (std::string("v of the ") + head).c_str()));
    y.push_back(matmul(softmax(scale(matmul(q.back(), transpose(k.back())), 0.5)), v.back()));
  }
  EXPECT_TRUE(near(attention(side_by_side({q[0], k[0], v[0]}), 1), values_of(y[0]), shape));
  EXPECT_TRUE(
      near(attention(side_by_side({q[0], q[1], k[0], k[1], v[0], v[1]}), 2), values_of(side_by_side(y)), {3, 7, 8}));
}

// The mask makes the scores of later tokens so small that their probabilities are 0.
TEST_P(TransformerOperations, CausalAttention) {
  for (const std::int64_t tokens : {1, 7, 66}) {
    const Tensor q = random({2, tokens, 4}, "q");
    const Tensor k = random({2, tokens, 4}, "k");
    const Tensor v = random({2, tokens, 4}, "v");
    Values mask;
    for (std::int64_t i = 0; i < tokens * tokens; ++i) {
      mask.push_back(i % tokens > i / tokens ? -1e30 : 0);
    }
    const Tensor scores = scale(matmul(q, transpose(k)), 0.5);
    const Tensor y = matmul(softmax(add_broadcast(scores, typed(mask, {tokens, tokens}))), v);
    EXPECT_TRUE(near(attention(side_by_side({q, k, v}), 1, AttentionMask::causal), values_of(y), {2, tokens, 4}));
  }
}

// Not in a single byte, and neither do the gradients of the later tokens know of them.
TEST_P(TransformerOperations, CausalAttentionOfATokenDoesNotDependOnLaterOnes) {
  constexpr std::int64_t kEarlier = 70;
  constexpr std::int64_t kTokens = 150;
  for (const std::int64_t width : {8, 36}) {  // on a GPU two kernels in float32
    const Tensor earlier = random({kEarlier, 3 * width}, "earlier");
    const auto run = [&](const char* later) {
      Tensor qkv = cat({earlier, random({kTokens - kEarlier, 3 * width}, later)}).reshape({1, kTokens, 3 * width});
      qkv.set_requires_grad(true);
      const Tensor y = attention(qkv, 1, AttentionMask::causal).reshape({kTokens, width}).narrow(0, kEarlier);
      backward(y, random({kEarlier, width}, "grad"));
      return std::pair{y, qkv.grad().reshape({kTokens, 3 * width})};
    };
    const auto [y, grad] = run("one");
    const auto [other_y, other_grad] = run("other");
    EXPECT_TRUE(same_bytes(y, other_y));
    EXPECT_TRUE(same_bytes(grad.narrow(0, kEarlier), other_grad.narrow(0, kEarlier)));
    for (const double value : values_of(grad.narrow(kEarlier, kTokens - kEarlier))) {
      ASSERT_EQ(value, 0);
    }
  }
}

// Whatever stands before the last dimension counts as rows.
TEST_P(TransformerOperations, TakeAnyNumberOfLeadingDimensions) {
  const Tensor weight = random({5, 6}, "weight");
  const Tensor columns = random({6}, "columns");
  const Tensor x = random({24, 6}, "x");
  const std::function<Tensor(const Tensor&)> operations[] = {
      [&](const Tensor& rows) { return linear(rows, weight); },
      [](const Tensor& rows) { return softmax(rows); },
      [](const Tensor& rows) { return log_softmax(rows); },
      [&](const Tensor& rows) { return layer_norm(rows, columns, columns); },
  };
  for (const auto& operation : operations) {
    const Tensor expected = operation(x);
    const std::int64_t width = expected.size(1);
    EXPECT_TRUE(same_bytes(operation(x.reshape({2, 3, 4, 6})), expected.reshape({2, 3, 4, width})));
    EXPECT_TRUE(same_bytes(operation(x.narrow(0, 1).reshape({6})), expected.narrow(0, 1).reshape({width})));
  }
}

class TransformerGradients : public ::testing::TestWithParam<Device> {
 protected:
  static void check(const test::Function& function, const Inputs& inputs) {
    check_gradients(GetParam(), function, inputs);
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, TransformerGradients, ::testing::ValuesIn(test::devices()), test::device_name);

const Shape kBlockShapes[] = {{1, 1, 1}, {2, 3, 4}, {3, 1, 5}, {1, 7, 2}, {2, 17, 3}};

TEST_P(TransformerGradients, Gelu) {
  for (const Shape& shape : kBlockShapes) {
    for (const GeluForm form : {GeluForm::exact, GeluForm::tanh}) {
      SCOPED_TRACE(to_string(shape));
      check([=](const Inputs& in) { return gelu(in[0], form); }, {random_tensor(shape, "x")});
    }
  }
}

TEST_P(TransformerGradients, LayerNorm) {
  for (const Shape& shape : {Shape{1, 2}, Shape{5}, Shape{2, 3, 4}, Shape{3, 1, 17}, Shape{2, 1, 3, 33}}) {
    SCOPED_TRACE(to_string(shape));
    check([](const Inputs& in) { return layer_norm(in[0], in[1], in[2], 0.1); },
          {random_tensor(shape, "x"), random_tensor({shape[-1]}, "weight"), random_tensor({shape[-1]}, "bias")});
  }
}

TEST_P(TransformerGradients, Matmul) {
  const std::pair<Shape, Shape> factors[] = {{{1, 1}, {1, 1}},
                                             {{3, 5}, {5, 2}},
                                             {{2, 4, 3}, {2, 3, 17}},
                                             {{2, 3, 1, 4}, {2, 3, 4, 2}},
                                             {{5, 17, 2}, {5, 2, 1}}};
  for (const auto& [a, b] : factors) {
    SCOPED_TRACE(to_string(a));
    check([](const Inputs& in) { return matmul(in[0], in[1]); }, {random_tensor(a, "a"), random_tensor(b, "b")});
  }
}

TEST_P(TransformerGradients, Attention) {
  const std::pair<Shape, std::int64_t> cases[] = {
      {{1, 1, 3}, 1}, {{2, 3, 12}, 2}, {{1, 5, 18}, 3}, {{3, 4, 6}, 1}, {{1, 17, 12}, 4}};
  for (const auto& [shape, heads] : cases) {
    SCOPED_TRACE(to_string(shape));
    for (const AttentionMask mask : {AttentionMask::none, AttentionMask::causal}) {
      check([h = heads, mask](const Inputs& in) { return attention(in[0], h, mask); }, {random_tensor(shape, "qkv")});
    }
  }
}

TEST_P(TransformerGradients, AddBroadcast) {
  for (const Shape& shape : kBlockShapes) {
    SCOPED_TRACE(to_string(shape));
    check([](const Inputs& in) { return add_broadcast(in[0], in[1]); },
          {random_tensor(shape, "x"), random_tensor({shape[1], shape[2]}, "b")});
  }
}

TEST_P(TransformerGradients, Embedding) {
  for (const Shape& shape : {Shape{1}, Shape{7}, Shape{2, 5}, Shape{2, 3, 4}, Shape{9, 1}}) {
    SCOPED_TRACE(to_string(shape));
    const Tensor tokens = test::random_labels(shape.numel(), 4, GetParam()).reshape(shape);
    check([=](const Inputs& in) { return embedding(tokens, in[0]); }, {random_tensor({4, 3}, "weight")});
  }
}

TEST_P(TransformerGradients, Dropout) {
  for (const Shape& shape : {Shape{9}, Shape{1, 1}, Shape{2, 5}, Shape{2, 3, 4}, Shape{3, 17}}) {
    SCOPED_TRACE(to_string(shape));
    check([](const Inputs& in) { return dropout(in[0], {0.4, Philox(1, "layer"), 7}); }, {random_tensor(shape, "x")});
  }
}

/// A sample's mask is the same alone and in a batch, differs between samples and steps, and keeps about 1 - p.
TEST(Dropout, DependsOnTheSampleAndTheStepOnly) {
  const Tensor ones = Tensor::full({100, 30}, 1);
  const auto at = [&](const Tensor& x, std::uint64_t step, std::uint64_t first) {
    return dropout(x, {0.25, Philox(1, "layer"), (step << 32) + first});
  };
  const Tensor whole = at(ones, 2, 0);
  for (const std::int64_t n : {0, 1, 41, 99}) {
    EXPECT_TRUE(same_bytes(at(ones.narrow(n, 1), 2, static_cast<std::uint64_t>(n)), whole.narrow(n, 1)));
  }
  EXPECT_FALSE(same_bytes(whole.narrow(0, 1), whole.narrow(1, 1)));
  EXPECT_FALSE(same_bytes(at(ones, 3, 0), whole));
  EXPECT_FALSE(same_bytes(dropout(ones, {0.25, Philox(1, "other"), std::uint64_t{2} << 32}), whole));
  const std::vector<float> values = whole.to_vector<float>();
  const auto dropped = std::count(values.begin(), values.end(), 0.0F);
  EXPECT_NEAR(static_cast<double>(dropped) / 3000, 0.25, 0.03);
  EXPECT_EQ(*std::max_element(values.begin(), values.end()), static_cast<float>(1 / 0.75));
}

TEST_P(TransformerGradients, OfDropoutAreNotRecorded) {
  if (GetParam().type == DeviceType::cuda) {
    Replay replay(GetParam(), true);
    const Tensor x = random_tensor({2, 3}, "x", DType::float32, GetParam());
    const auto run = [&] { replay.run({x}, [](auto inputs) { dropout(inputs[0], {0.4, Philox(1), 7}); }); };
    run();
    EXPECT_TRUE(test::fails_with<Error>({"dropout", "not recorded"}, run));
  }
}

TEST_P(TransformerGradients, TransposeAndTokenMean) {
  for (const Shape& shape : kBlockShapes) {
    SCOPED_TRACE(to_string(shape));
    check([](const Inputs& in) { return transpose(in[0]); }, {random_tensor(shape, "x")});
    check([](const Inputs& in) { return token_mean(in[0]); }, {random_tensor(shape, "x")});
  }
}

TEST_P(TransformerGradients, LinearAndSoftmaxOfManyDimensions) {
  for (const Shape& shape : {Shape{3}, Shape{2, 3, 4}, Shape{1, 1, 1}, Shape{2, 1, 3, 5}, Shape{3, 2, 7}}) {
    SCOPED_TRACE(to_string(shape));
    check([](const Inputs& in) { return linear(in[0], in[1], in[2]); },
          {random_tensor(shape, "x"), random_tensor({4, shape[-1]}, "weight"), random_tensor({4}, "bias")});
    check([](const Inputs& in) { return softmax(in[0]); }, {random_tensor(shape, "x")});
  }
}

}  // namespace
}  // namespace stagecoach
