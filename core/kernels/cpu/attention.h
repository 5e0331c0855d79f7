#pragma once
/// @file
/// Attention, softmax(q k^T / sqrt(D)) v for each head of D features, as plain loops, which read like the formula and
/// take one query at a time. The kernels (attention.cpp) take a block of queries at a time and compute matrix products
/// in register tiles (matrix_product.h). Neither holds more than 64 rows of a head's [T, T] probabilities: the backward
/// computes them again (as in Dao et al., "FlashAttention", 2022, section 3.1, though there in blocks of keys too).
///
/// qkv [N, T, 3 W], where W = heads * D; y [N, T, W].

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/kernels/settings.h"

namespace stagecoach::cpu {

struct AttentionShape {
  std::int64_t samples;  ///< N
  std::int64_t tokens;   ///< T
  std::int64_t width;    ///< W
  std::int64_t heads;
  AttentionMask mask = AttentionMask::none;
  std::int64_t earlier = 0;  ///< tokens before the first query, which are keys only (see attention_part)
  std::int64_t keys() const { return earlier + tokens; }
  /// Returns how many keys, from the first one on, query t sees.
  std::int64_t visible(std::int64_t t) const { return mask == AttentionMask::causal ? earlier + t + 1 : keys(); }
  std::int64_t head_width() const { return width / heads; }  ///< D
  template <class T>
  T scale() const {
    return 1 / std::sqrt(static_cast<T>(head_width()));
  }
};

/// One head of one sample: its matrices [T, D], of which rows are 3 W apart (of y: W).
template <class T>
struct Head {
  /// `head` counts over samples and heads.
  Head(const AttentionShape& s, std::int64_t head, T* qkv)
      : row(3 * s.width),
        q(qkv + head / s.heads * s.tokens * row + head % s.heads * s.head_width()),
        k(q + s.width),
        v(k + s.width) {}
  std::int64_t row;
  T* q;
  T* k;
  T* v;
};

/// Returns the matrix [T, D] of one head in y [N, T, W].
template <class T>
T* head_of(const AttentionShape& s, std::int64_t head, T* y) {
  return y + head / s.heads * s.tokens * s.width + head % s.heads * s.head_width();
}

namespace plain {

template <class T>
T dot(std::int64_t count, const T* a, const T* b) {
  T sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    sum += a[i] * b[i];
  }
  return sum;
}

/// Returns p[s] = softmax over s of q[t] k[s] / sqrt(D), for each s that t sees.
template <class T>
std::vector<T> probabilities(const AttentionShape& shape, const Head<const T>& head, std::int64_t t) {
  std::vector<T> p;
  for (std::int64_t s = 0; s < shape.visible(t); ++s) {
    const T score = dot(shape.head_width(), head.q + t * head.row, head.k + s * head.row);
    p.push_back(shape.scale<T>() * score);
  }
  const T largest = *std::max_element(p.begin(), p.end());
  T sum = 0;
  for (T& value : p) {
    value = std::exp(value - largest);
    sum += value;
  }
  for (T& value : p) {
    value /= sum;
  }
  return p;
}

/// y[t] = sum over s of p[s] v[s]
template <class T>
void attention(const AttentionShape& shape, const T* qkv, T* y) {
  std::fill_n(y, shape.samples * shape.tokens * shape.width, T(0));
  for (std::int64_t h = 0; h < shape.samples * shape.heads; ++h) {
    const Head<const T> head(shape, h, qkv);
    T* out = head_of(shape, h, y);
    for (std::int64_t t = 0; t < shape.tokens; ++t) {
      const std::vector<T> p = probabilities(shape, head, t);
      for (std::int64_t s = 0; s < shape.visible(t); ++s) {
        for (std::int64_t d = 0; d < shape.head_width(); ++d) {
          out[t * shape.width + d] += p[static_cast<std::size_t>(s)] * head.v[s * head.row + d];
        }
      }
    }
  }
}

/// With dp[s] = grad_y[t] v[s] and ds[s] = p[s] (dp[s] - sum of p dp) / sqrt(D), query t adds
/// ds[s] k[s] to grad_q[t], ds[s] q[t] to grad_k[s] and p[s] grad_y[t] to grad_v[s].
template <class T>
void attention_grad(const AttentionShape& shape, const T* grad_y, const T* qkv, T* grad_qkv) {
  std::fill_n(grad_qkv, 3 * shape.samples * shape.tokens * shape.width, T(0));
  for (std::int64_t h = 0; h < shape.samples * shape.heads; ++h) {
    const Head<const T> head(shape, h, qkv);
    const Head<T> grad(shape, h, grad_qkv);
    const T* grad_out = head_of(shape, h, grad_y);
    for (std::int64_t t = 0; t < shape.tokens; ++t) {
      const std::vector<T> p = probabilities(shape, head, t);
      const T* upstream = grad_out + t * shape.width;
      std::vector<T> dp;
      for (std::int64_t s = 0; s < shape.visible(t); ++s) {
        dp.push_back(dot(shape.head_width(), upstream, head.v + s * head.row));
      }
      const T mean = dot(shape.visible(t), p.data(), dp.data());
      for (std::int64_t s = 0; s < shape.visible(t); ++s) {
        const auto i = static_cast<std::size_t>(s);
        const T ds = p[i] * (dp[i] - mean) * shape.scale<T>();
        for (std::int64_t d = 0; d < shape.head_width(); ++d) {
          grad.q[t * grad.row + d] += ds * head.k[s * head.row + d];
          grad.k[s * grad.row + d] += ds * head.q[t * head.row + d];
          grad.v[s * grad.row + d] += p[i] * upstream[d];
        }
      }
    }
  }
}

}  // namespace plain
}  // namespace stagecoach::cpu
