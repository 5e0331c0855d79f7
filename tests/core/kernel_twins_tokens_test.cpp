// What transformers are made of: layer norm, GELU, attention, products of pairs of matrices, sequences of tokens.

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/core/kernel_twins.h"

namespace stagecoach {
namespace {

using test::Tensors;

class TokenTwins : public test::KernelTwins {};
STAGECOACH_KERNEL_TWINS(TokenTwins);

constexpr GeluForm kForms[] = {GeluForm::exact, GeluForm::tanh};

TEST_P(TokenTwins, Gelu) {
  for (const GeluForm form : kForms) {
    for (const Shape& shape : {Shape{}, Shape{37}, Shape{3, 1021}, Shape{0}}) {
      SCOPED_TRACE(to_string(shape));
      expect_twins({random(shape, "x"), unset(shape)}, [=](const Kernels& k, Tensors& t) { k.gelu(t[0], form, t[1]); });
      expect_twins({random(shape, "grad"), random(shape, "x"), unset(shape)},
                   [=](const Kernels& k, Tensors& t) { k.gelu_grad(t[0], t[1], form, t[2]); });
    }
    const double none = std::numeric_limits<double>::quiet_NaN();
    const Tensor special = test::typed(std::vector<double>{none, 0, -0.0, 40, -40}, {5}, type());
    expect_twins({special, unset({5})}, [=](const Kernels& k, Tensors& t) { k.gelu(t[0], form, t[1]); });
  }
}

// As the backward does with a gradient that nobody else sees.
TEST_P(TokenTwins, GeluGradInPlace) {
  expect_twins({random({1009}, "grad"), random({1009}, "x")},
               [](const Kernels& k, Tensors& t) { k.gelu_grad(t[0], t[1], GeluForm::tanh, t[0]); });
}

const Shape kTokenRows[] = {{1, 1}, {1, 7}, {37, 10}, {3, 32}, {2, 33}, {6, 257}, {70, 64}, {701, 33}, {0, 5}};

TEST_P(TokenTwins, LayerNorm) {
  for (const Shape& shape : kTokenRows) {
    SCOPED_TRACE(to_string(shape));
    const Shape columns{shape[1]};
    expect_twins({random(shape, "x"), random(columns, "weight"), random(columns, "bias"), unset(shape),
                  unset({shape[0]}), unset({shape[0]})},
                 [](const Kernels& k, Tensors& t) { k.layer_norm(t[0], t[1], t[2], 1e-2, t[3], t[4], t[5]); });
  }
}

TEST_P(TokenTwins, LayerNormGradInput) {
  for (const Shape& shape : kTokenRows) {
    SCOPED_TRACE(to_string(shape));
    expect_twins(
        {random(shape, "grad"), random(shape, "x"), random({shape[0]}, "mean"), positive({shape[0]}, "rstd"),
         random({shape[1]}, "weight"), unset(shape)},
        [](const Kernels& k, Tensors& t) { k.layer_norm_grad_input(t[0], t[1], t[2], t[3], t[4], t[5]); }, shape[1]);
  }
}

TEST_P(TokenTwins, LayerNormGradWeight) {
  for (const Shape& shape : kTokenRows) {
    SCOPED_TRACE(to_string(shape));
    expect_twins(
        {random(shape, "grad"), random(shape, "x"), random({shape[0]}, "mean"), positive({shape[0]}, "rstd"),
         unset({shape[1]}), unset({shape[1]})},
        [](const Kernels& k, Tensors& t) { k.layer_norm_grad_weight(t[0], t[1], t[2], t[3], t[4], t[5]); }, shape[0]);
  }
}

TEST_P(TokenTwins, Matmul) {
  for (const auto& [batches, m, n, k] :
       {std::array<std::int64_t, 4>{1, 1, 1, 1}, {3, 17, 5, 16}, {2, 16, 33, 40}, {5, 3, 18, 7}, {0, 3, 4, 5}}) {
    for (const Transposed transposed : {Transposed{false, false}, {true, false}, {false, true}, {true, true}}) {
      SCOPED_TRACE(fmt::format("{} times {} x {} x {}", batches, m, n, k));
      const Tensor a = random(transposed.a ? Shape{batches, k, m} : Shape{batches, m, k}, "a");
      const Tensor b = random(transposed.b ? Shape{batches, n, k} : Shape{batches, k, n}, "b");
      expect_twins(
          {a, b, unset({batches, m, n})},
          [=](const Kernels& on, Tensors& t) { on.matmul(t[0], t[1], transposed, t[2]); }, k);
    }
  }
}

constexpr AttentionMask kMasks[] = {AttentionMask::none, AttentionMask::causal};

/// Samples, tokens, width, heads.
const std::array<std::int64_t, 4> kAttentionCases[] = {{1, 1, 1, 1},    {2, 5, 6, 2},   {1, 17, 36, 2}, {3, 16, 8, 4},
                                                       {1, 40, 18, 1},  {0, 4, 6, 2},   {2, 64, 64, 4}, {1, 65, 64, 2},
                                                       {1, 130, 40, 2}, {1, 20, 66, 2}, {2, 9, 66, 2}};

TEST_P(TokenTwins, Attention) {
  for (const auto& [samples, tokens, width, heads] : kAttentionCases) {
    SCOPED_TRACE(fmt::format("{} samples, {} tokens, width {}, {} heads", samples, tokens, width, heads));
    for (const AttentionMask mask : kMasks) {
      expect_twins(
          {random({samples, tokens, 3 * width}, "qkv"), unset({samples, tokens, width})},
          [h = heads, mask](const Kernels& k, Tensors& t) { k.attention(t[0], h, mask, t[1]); }, tokens);
    }
  }
}

TEST_P(TokenTwins, AttentionGrad) {
  for (const auto& [samples, tokens, width, heads] : kAttentionCases) {
    SCOPED_TRACE(fmt::format("{} samples, {} tokens, width {}, {} heads", samples, tokens, width, heads));
    for (const AttentionMask mask : kMasks) {
      expect_twins(
          {random({samples, tokens, width}, "grad"), random({samples, tokens, 3 * width}, "qkv"),
           unset({samples, tokens, 3 * width})},
          [h = heads, mask](const Kernels& k, Tensors& t) { k.attention_grad(t[0], t[1], h, mask, t[2]); }, tokens);
    }
  }
}

/// Samples, queries, keys, width, heads.
const std::array<std::int64_t, 5> kAttentionParts[] = {{1, 1, 1, 1, 1},    {2, 5, 9, 6, 2},     {1, 17, 17, 36, 2},
                                                       {2, 64, 70, 64, 4}, {1, 130, 300, 8, 2}, {0, 4, 4, 6, 2}};

TEST_P(TokenTwins, AttentionPart) {
  for (const auto& [samples, queries, keys, width, heads] : kAttentionParts) {
    SCOPED_TRACE(fmt::format("{} samples, {} queries, {} keys, width {}", samples, queries, keys, width));
    const Tensor q = random({samples, queries, width}, "q");
    const Tensor kv = random({samples, keys, 2 * width}, "kv");
    const Shape sums{samples, heads, queries};
    for (const AttentionMask mask : kMasks) {
      expect_twins(
          {random(q.shape(), "grad"), q, kv, unset(q.shape()), unset(sums), unset(q.shape()), unset(kv.shape())},
          [h = heads, mask](const Kernels& k, Tensors& t) {
            k.attention_part(t[1], t[2], h, mask, t[3], t[4]);
            k.attention_part_grad(t[0], t[3], t[1], t[2], t[4], h, mask, t[5], t[6]);
          },
          keys);
    }
  }
}

TEST_P(TokenTwins, MergeAttention) {
  for (const auto& [samples, queries, keys, width, heads] : kAttentionParts) {
    const Shape shape{samples, queries, width};
    const Shape sums{samples, heads, queries};
    expect_twins({random(shape, "part"), random(sums, "part sums"), random(shape, "y"), random(sums, "sums")},
                 [](const Kernels& k, Tensors& t) { k.merge_attention(t[0], t[1], t[2], t[3]); });
  }
}

// Scores that exp cannot take, and whose maximum grows from token to token.
TEST_P(TokenTwins, AttentionOfLargeNumbers) {
  const Shape shape{1, 150, 3 * 16};
  std::vector<double> qkv(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < qkv.size(); ++i) {
    const std::size_t token = i / 48;
    const std::size_t part = i % 48 / 16;  // of queries, keys and values
    qkv[i] = part == 0 ? 8 : part == 1 ? static_cast<double>(token) / 16 : static_cast<double>(i % 7) / 8;
  }
  const Tensor x = test::typed(qkv, shape, type());
  const Shape out{1, 150, 16};
  for (const AttentionMask mask : kMasks) {
    expect_twins(
        {x, unset(out)}, [mask](const Kernels& k, Tensors& t) { k.attention(t[0], 1, mask, t[1]); }, 150);
    expect_twins(
        {random(out, "grad"), x, unset(shape)},
        [mask](const Kernels& k, Tensors& t) { k.attention_grad(t[0], t[1], 1, mask, t[2]); }, 1000);
  }
}

const Shape kTokens[] = {{1, 1, 1}, {2, 5, 3}, {3, 17, 40}, {1, 64, 7}, {0, 3, 4}};

TEST_P(TokenTwins, Transpose) {
  for (const Shape& shape : kTokens) {
    SCOPED_TRACE(to_string(shape));
    expect_twins({random(shape, "x"), unset({shape[0], shape[2], shape[1]})},
                 [](const Kernels& k, Tensors& t) { k.transpose(t[0], t[1]); });
  }
}

TEST_P(TokenTwins, AddBroadcast) {
  for (const Shape& shape : kTokens) {
    SCOPED_TRACE(to_string(shape));
    expect_twins({random(shape, "x"), random({shape[1], shape[2]}, "b"), unset(shape)},
                 [](const Kernels& k, Tensors& t) { k.add_broadcast(t[0], t[1], t[2]); });
  }
}

TEST_P(TokenTwins, Embedding) {
  for (const auto& [tokens, vocabulary, width] :
       {std::array<std::int64_t, 3>{1, 1, 1}, {70, 5, 33}, {9, 300, 64}, {257, 17, 130}, {0, 4, 3}}) {
    SCOPED_TRACE(fmt::format("{} tokens of {}, width {}", tokens, vocabulary, width));
    const Tensor indices = test::random_labels(tokens, vocabulary);
    expect_twins({indices, random({vocabulary, width}, "weight"), unset({tokens, width})},
                 [](const Kernels& k, Tensors& t) { k.embedding(t[0], t[1], t[2]); });
    expect_twins(
        {random({tokens, width}, "grad"), indices, unset({vocabulary, width})},
        [](const Kernels& k, Tensors& t) { k.embedding_grad(t[0], t[1], t[2]); }, tokens);
  }
}

// The CPU's kernel throws.
TEST(CudaEmbedding, GivesNanForATokenThatTheWeightLacks) {
  if (!test::has_cuda()) {
    GTEST_SKIP() << test::why_no_cuda();
  }
  const Tensor tokens = Tensor::from(std::vector<std::int32_t>{1, 5, -1}, {3}).to(test::kCuda);
  const Tensor weight = Tensor::full({5, 2}, 1, DType::float32, test::kCuda);
  Tensor y = Tensor::empty({3, 2}, DType::float32, test::kCuda);
  kernels(test::kCuda).embedding(tokens, weight, y);
  const std::vector<float> values = y.to_vector<float>();
  EXPECT_EQ(values[1], 1);
  EXPECT_TRUE(std::isnan(values[2]) && std::isnan(values[3]) && std::isnan(values[4]) && std::isnan(values[5]));
}

TEST_P(TokenTwins, Dropout) {
  for (const Shape& shape : {Shape{1}, Shape{5}, Shape{3, 7}, Shape{2, 5, 12}, Shape{2, 1021}, Shape{0, 4}}) {
    for (const double probability : {0.0, 0.1, 0.75}) {
      SCOPED_TRACE(to_string(shape));
      const DropoutMask mask{probability, Philox(1, "layer.dropout"), (std::uint64_t{3} << 32) + 5};
      expect_twins({random(shape, "x"), unset(shape)},
                   [=](const Kernels& k, Tensors& t) { k.dropout(t[0], mask, t[1]); });
    }
  }
}

TEST_P(TokenTwins, TokenMean) {
  for (const Shape& shape : kTokens) {
    SCOPED_TRACE(to_string(shape));
    const Shape mean{shape[0], shape[2]};
    expect_twins({random(shape, "x"), unset(mean)}, [](const Kernels& k, Tensors& t) { k.token_mean(t[0], t[1]); });
    expect_twins({random(mean, "grad"), unset(shape)},
                 [](const Kernels& k, Tensors& t) { k.token_mean_grad(t[0], t[1]); });
  }
}

}  // namespace
}  // namespace stagecoach
