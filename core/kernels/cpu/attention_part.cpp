#include <algorithm>

#include "core/kernels/cpu/attention_blocks.h"
#include "core/kernels/cpu/tables.h"
#include "core/kernels/groups.h"

namespace stagecoach::cpu {
namespace {

/// One head of one sample: its queries [S, D], and its keys and values [K, D].
template <class T>
struct PartHead {
  /// `head` counts over samples and heads; q [N, S, W], kv [N, K, 2 W].
  PartHead(const AttentionShape& s, std::int64_t head, T* queries, T* kv)
      : q_row(s.width),
        row(2 * s.width),
        q(head_of(s, head, queries)),
        k(kv + head / s.heads * s.keys() * row + head % s.heads * s.head_width()),
        v(k + s.width) {}
  std::int64_t q_row;
  std::int64_t row;  // of k and v
  T* q;
  T* k;
  T* v;
};

AttentionShape part_shape(const Tensor& q, const Tensor& kv, std::int64_t heads, AttentionMask mask) {
  return {q.size(0), q.size(1), q.size(2), heads, mask, kv.size(1) - q.size(1)};
}

void attention_part(const Tensor& q, const Tensor& kv, std::int64_t heads, AttentionMask mask, Tensor& y,
                    Tensor& log_sums) {
  dispatch_floating(q.dtype(), "attention_part", [&]<class T>() {
    const Device device = y.device();
    const AttentionShape s = part_shape(q, kv, heads, mask);
    const T* in_q = q.data<T>();                 // [N, S, W]
    const T* in_kv = kv.data<T>();               // [N, K, 2 W]
    T* result = y.mutable_data<T>();             // [N, S, W]
    T* log_result = log_sums.mutable_data<T>();  // [N, heads, S]
    const std::int64_t rows = std::min(s.tokens, kQueries);
    parallel_for(device, s.samples * s.heads, [&](std::int64_t h) {
      const SingleThreaded inside;
      const PartHead<const T> head(s, h, in_q, in_kv);
      T* out = head_of(s, h, result);
      const PaddedMatrix<T> keys(device, s.head_width(), s.keys());  // transposed
      const PaddedMatrix<T> values(device, s.keys(), s.head_width());
      const PaddedMatrix<T> p(device, rows, s.keys());
      const PaddedMatrix<T> sums(device, rows, s.head_width());
      keys.take_transposed(head.k, head.row);
      values.take(s.keys(), head.v, head.row);
      for (std::int64_t t = 0; t < s.tokens; t += kQueries) {
        const QueryBlock<T> block(s, t);
        const Factor<T> queries{head.q + t * head.q_row, head.q_row, 1};
        multiply_padded<T>(device, block.rows, block.keys, s.head_width(), queries, keys, p);
        softmax_rows(block, p, log_result + h * s.tokens);
        multiply_padded<T>(device, block.rows, s.head_width(), block.keys, {p.data(), p.row_length(), 1}, values, sums);
        sums.give(block.rows, out + t * s.width, s.width);
      }
    });
  });
}

/// Replaces the rows of scores by p = exp(scale * score - log_sum), and those of dp by the gradient of the scores, p
/// (dp
/// - sum of grad_y y) scale, for queries with the matrices grad_y and y, whose rows are `width` apart.
template <class T>
void grad_rows(const QueryBlock<T>& block, const PaddedMatrix<T>& scores, const PaddedMatrix<T>& dp, const T* log_sums,
               const T* grad_y, const T* y, std::int64_t width) {
  const T scale = block.s.template scale<T>();
  const std::int64_t length = block.length(block.rows - 1);
  for (std::int64_t r = 0; r < block.rows; ++r) {
    T* p = scores.row(r);
    T* grad = dp.row(r);
    const Vec<T> log_sum = broadcast(log_sums[block.begin + r]);
    for (std::int64_t j = 0; j < length; j += kLanes<T>) {
      store(exp<T>(load(p + j) * broadcast(scale) - log_sum), p + j);
    }
    block.fill_hidden(p, r, length, T(0));
    const Vec<T> mean = broadcast(plain::dot(block.s.head_width(), grad_y + r * width, y + r * width));
    for (std::int64_t j = 0; j < length; j += kLanes<T>) {
      store(load(p + j) * (load(grad + j) - mean) * broadcast(scale), grad + j);
    }
  }
}

void attention_part_grad(const Tensor& grad_y, const Tensor& y, const Tensor& q, const Tensor& kv,
                         const Tensor& log_sums, std::int64_t heads, AttentionMask mask, Tensor& grad_q,
                         Tensor& grad_kv) {
  dispatch_floating(q.dtype(), "attention_part_grad", [&]<class T>() {
    const Device device = q.device();
    const AttentionShape s = part_shape(q, kv, heads, mask);
    const T* grads = grad_y.data<T>();          // [N, S, W]
    const T* results = y.data<T>();             // [N, S, W]
    const T* in_q = q.data<T>();                // [N, S, W]
    const T* in_kv = kv.data<T>();              // [N, K, 2 W]
    const T* in_log_sums = log_sums.data<T>();  // [N, heads, S]
    T* out_q = grad_q.mutable_data<T>();        // [N, S, W]
    T* out_kv = grad_kv.mutable_data<T>();      // [N, K, 2 W]
    const std::int64_t rows = std::min(s.tokens, kQueries);
    const std::int64_t width = s.head_width();
    parallel_for(device, s.samples * s.heads, [&](std::int64_t h) {
      const SingleThreaded inside;
      const PartHead<const T> head(s, h, in_q, in_kv);
      const PartHead<T> grad(s, h, out_q, out_kv);
      const T* grad_out = head_of(s, h, grads);
      const T* out = head_of(s, h, results);
      const PaddedMatrix<T> transposed_keys(device, width, s.keys());
      const PaddedMatrix<T> transposed_values(device, width, s.keys());
      const PaddedMatrix<T> keys(device, s.keys(), width);
      const PaddedMatrix<T> queries(device, rows, width);
      const PaddedMatrix<T> upstream(device, rows, width);
      const PaddedMatrix<T> p(device, rows, s.keys());
      const PaddedMatrix<T> ds(device, rows, s.keys());
      const PaddedMatrix<T> grad_queries(device, rows, width);
      const PaddedMatrix<T> grad_keys(device, s.keys(), width);
      const PaddedMatrix<T> grad_values(device, s.keys(), width);
      transposed_keys.take_transposed(head.k, head.row);
      transposed_values.take_transposed(head.v, head.row);
      keys.take(s.keys(), head.k, head.row);
      for (std::int64_t t = 0; t < s.tokens; t += kQueries) {
        const QueryBlock<T> block(s, t);
        const T* q_rows = head.q + t * head.q_row;
        const T* grad_rows_of_y = grad_out + t * s.width;
        queries.take(block.rows, q_rows, head.q_row);
        upstream.take(block.rows, grad_rows_of_y, s.width);
        multiply_padded<T>(device, block.rows, block.keys, width, {q_rows, head.q_row, 1}, transposed_keys, p);
        multiply_padded<T>(device, block.rows, block.keys, width, {grad_rows_of_y, s.width, 1}, transposed_values, ds);
        grad_rows(block, p, ds, in_log_sums + h * s.tokens, grad_rows_of_y, out + t * s.width, s.width);
        multiply_padded<T>(device, block.rows, width, block.keys, {ds.data(), ds.row_length(), 1}, keys, grad_queries);
        multiply_padded<T>(device, block.keys, width, block.rows, {ds.data(), 1, ds.row_length()}, queries, grad_keys,
                           true);
        multiply_padded<T>(device, block.keys, width, block.rows, {p.data(), 1, p.row_length()}, upstream, grad_values,
                           true);
        grad_queries.give(block.rows, grad.q + t * grad.q_row, grad.q_row);
      }
      grad_keys.give(s.keys(), grad.k, grad.row);
      grad_values.give(s.keys(), grad.v, grad.row);
    });
  });
}

void merge_attention(const Tensor& part, const Tensor& part_log_sums, Tensor& y, Tensor& log_sums) {
  dispatch_floating(y.dtype(), "merge_attention", [&]<class T>() {
    const AttentionShape s{y.size(0), y.size(1), y.size(2), log_sums.size(1)};
    const T* in = part.data<T>();                    // [N, S, W]
    const T* in_log_sums = part_log_sums.data<T>();  // [N, heads, S]
    T* out = y.mutable_data<T>();                    // [N, S, W]
    T* out_log_sums = log_sums.mutable_data<T>();    // [N, heads, S]
    parallel_for(y.device(), s.samples * s.heads, [&](std::int64_t h) {
      const T* from = head_of(s, h, in);
      T* to = head_of(s, h, out);
      for (std::int64_t t = 0; t < s.tokens; ++t) {
        T& mine = out_log_sums[h * s.tokens + t];
        const T other = in_log_sums[h * s.tokens + t];
        const T largest = std::max(mine, other);
        const T log_sum = largest + std::log(std::exp(mine - largest) + std::exp(other - largest));
        const T share = std::exp(mine - log_sum);
        const T other_share = std::exp(other - log_sum);
        for (std::int64_t d = t * s.width; d < t * s.width + s.head_width(); ++d) {
          to[d] = share * to[d] + other_share * from[d];
        }
        mine = log_sum;
      }
    });
  });
}

}  // namespace

void add_attention_part(Tables& tables) {
  tables.add<&Kernels::attention_part>("attention_part", attention_part);
  tables.add<&Kernels::attention_part_grad>("attention_part_grad", attention_part_grad);
  tables.add<&Kernels::merge_attention>("merge_attention", merge_attention);
}

}  // namespace stagecoach::cpu
