// Costs, and results, of attention to a part of the keys.

#include <cmath>
#include <vector>

#include "tests/core/kernel_costs.h"

namespace stagecoach {
namespace {

using test::Array;
using test::Counted;
using test::expect_cost;
using test::random_tensor;
using test::unwritten;

/// One query t of one head of one sample: elements of q and y [N, S, W], kv [N, K, 2 W] and log_sums [N, heads, S].
struct PartQuery {
  std::int64_t sample, head, t, queries, keys, width, head_width, heads;
  AttentionMask mask;
  std::int64_t visible() const { return mask == AttentionMask::causal ? keys - queries + t + 1 : keys; }
  std::int64_t q(std::int64_t d) const { return (sample * queries + t) * width + head * head_width + d; }
  std::int64_t k(std::int64_t s, std::int64_t d) const {
    return (sample * keys + s) * 2 * width + head * head_width + d;
  }
  std::int64_t v(std::int64_t s, std::int64_t d) const { return k(s, d) + width; }
  std::int64_t row() const { return (sample * heads + head) * queries + t; }
};

template <class Body>
void for_each_query(const Array& q, const Array& kv, std::int64_t heads, AttentionMask mask, const Body& body) {
  for (std::int64_t row = 0; row < q.size(0) * heads * q.size(1); ++row) {
    const std::int64_t batch = row / q.size(1);
    body(PartQuery{batch / heads, batch % heads, row % q.size(1), q.size(1), kv.size(1), q.size(2), q.size(2) / heads,
                   heads, mask});
  }
}

/// Returns q k[s] / sqrt(D) for each s that the query sees.
std::vector<Counted> plain_scores(const Array& q, const Array& kv, const PartQuery& at) {
  const double scale = 1 / std::sqrt(static_cast<double>(at.head_width));
  std::vector<Counted> scores;
  for (std::int64_t s = 0; s < at.visible(); ++s) {
    Counted score;
    for (std::int64_t d = 0; d < at.head_width; ++d) {
      score += q[at.q(d)] * kv[at.k(s, d)];
    }
    scores.push_back(scale * score);
  }
  return scores;
}

void plain_attention_part(const Array& q, const Array& kv, std::int64_t heads, AttentionMask mask, Array& y,
                          Array& log_sums) {
  y.clear();
  for_each_query(q, kv, heads, mask, [&](const PartQuery& at) {
    std::vector<Counted> p = plain_scores(q, kv, at);
    Counted largest = p[0];
    for (std::size_t s = 1; s < p.size(); ++s) {
      largest = largest < p[s] ? p[s] : largest;
    }
    Counted sum;
    for (Counted& value : p) {
      value = exp(value - largest);
      sum += value;
    }
    log_sums[at.row()] = largest + log(sum);
    for (std::int64_t s = 0; s < at.visible(); ++s) {
      const Counted share = p[static_cast<std::size_t>(s)] / sum;
      for (std::int64_t d = 0; d < at.head_width; ++d) {
        y[at.q(d)] += share * kv[at.v(s, d)];
      }
    }
  });
}

/// With p[s] = exp(score - log_sum), dp[s] = grad_y v[s] and ds[s] = p[s] (dp[s] - grad_y y) / sqrt(D).
void plain_attention_part_grad(const Array& grad_y, const Array& y, const Array& q, const Array& kv,
                               const Array& log_sums, std::int64_t heads, AttentionMask mask, Array& grad_q,
                               Array& grad_kv) {
  grad_q.clear();
  grad_kv.clear();
  for_each_query(q, kv, heads, mask, [&](const PartQuery& at) {
    const double scale = 1 / std::sqrt(static_cast<double>(at.head_width));
    const std::vector<Counted> scores = plain_scores(q, kv, at);
    Counted mean;
    for (std::int64_t d = 0; d < at.head_width; ++d) {
      mean += grad_y[at.q(d)] * y[at.q(d)];
    }
    for (std::int64_t s = 0; s < at.visible(); ++s) {
      const Counted p = exp(scores[static_cast<std::size_t>(s)] - log_sums[at.row()]);
      Counted dp;
      for (std::int64_t d = 0; d < at.head_width; ++d) {
        dp += grad_y[at.q(d)] * kv[at.v(s, d)];
      }
      const Counted ds = p * (dp - mean) * scale;
      for (std::int64_t d = 0; d < at.head_width; ++d) {
        grad_q[at.q(d)] += ds * kv[at.k(s, d)];
        grad_kv[at.k(s, d)] += ds * q[at.q(d)];
        grad_kv[at.v(s, d)] += p * grad_y[at.q(d)];
      }
    }
  });
}

void plain_merge(const Array& part, const Array& part_log_sums, Array& y, Array& log_sums) {
  const std::int64_t heads = log_sums.size(1);
  for_each_query(y, y, heads, AttentionMask::none, [&](const PartQuery& at) {
    const Counted mine = log_sums[at.row()];
    const Counted other = part_log_sums[at.row()];
    const Counted largest = mine < other ? other : mine;
    const Counted log_sum = largest + log(exp(mine - largest) + exp(other - largest));
    const Counted share = exp(mine - log_sum);
    const Counted other_share = exp(other - log_sum);
    for (std::int64_t d = 0; d < at.head_width; ++d) {
      y[at.q(d)] = share * y[at.q(d)] + other_share * part[at.q(d)];
    }
    log_sums[at.row()] = log_sum;
  });
}

TEST(KernelCosts, AttentionPart) {
  struct Case {
    std::int64_t samples, queries, keys, width, heads;
  };
  for (const auto& [samples, queries, keys, width, heads] :
       {Case{1, 1, 1, 1, 1}, {2, 5, 7, 12, 3}, {1, 70, 70, 16, 2}, {1, 6, 90, 80, 2}}) {
    const Shape shape{samples, queries, width};
    const Shape sums{samples, heads, queries};
    const Tensor q = random_tensor(shape, "q");
    const Tensor kv = random_tensor({samples, keys, 2 * width}, "kv");
    for (const AttentionMask mask : {AttentionMask::none, AttentionMask::causal}) {
      expect_cost<&Kernels::attention_part, &KernelCosts::attention_part>(plain_attention_part, q, kv, heads, mask,
                                                                          unwritten(shape), unwritten(sums));
      expect_cost<&Kernels::attention_part_grad, &KernelCosts::attention_part_grad>(
          plain_attention_part_grad, random_tensor(shape, "grad"), random_tensor(shape, "y"), q, kv,
          random_tensor(sums, "log_sums"), heads, mask, unwritten(shape), unwritten(kv.shape()));
    }
    expect_cost<&Kernels::merge_attention, &KernelCosts::merge_attention>(
        plain_merge, random_tensor(shape, "part"), random_tensor(sums, "part sums"), random_tensor(shape, "y"),
        random_tensor(sums, "sums"));
  }
}

}  // namespace
}  // namespace stagecoach
