#include "core/kernels/cpu/attention_blocks.h"
#include "core/kernels/cpu/tables.h"
#include "core/kernels/groups.h"
#include "core/parallel_for.h"

namespace stagecoach::cpu {
namespace {

/// Replaces the rows of dp by the gradient of the scores: p (dp - sum of p dp) scale.
template <class T>
void softmax_grad_rows(const QueryBlock<T>& block, const PaddedMatrix<T>& p, const PaddedMatrix<T>& dp) {
  const T scale = block.s.template scale<T>();
  const std::int64_t length = block.length(block.rows - 1);
  for (std::int64_t r = 0; r < block.rows; ++r) {
    const T* probability = p.row(r);
    T* grad = dp.row(r);
    Vec<T> sum{};
    for (std::int64_t j = 0; j < length; j += kLanes<T>) {
      sum += load(probability + j) * load(grad + j);
    }
    const Vec<T> mean = broadcast(sum_of_lanes<T>(sum));
    for (std::int64_t j = 0; j < length; j += kLanes<T>) {
      store(load(probability + j) * (load(grad + j) - mean) * broadcast(scale), grad + j);
    }
  }
}

void attention(const Tensor& qkv, std::int64_t heads, AttentionMask mask, Tensor& y) {
  dispatch_floating(qkv.dtype(), "attention", [&]<class T>() {
    const Device device = y.device();
    const AttentionShape s{y.size(0), y.size(1), y.size(2), heads, mask};
    const T* in = qkv.data<T>();      // [N, T, 3 W]
    T* result = y.mutable_data<T>();  // [N, T, W]
    const std::int64_t rows = std::min(s.tokens, kQueries);
    parallel_for(device, s.samples * s.heads, [&](std::int64_t h) {
      const SingleThreaded inside;
      const Head<const T> head(s, h, in);
      T* out = head_of(s, h, result);
      const PaddedMatrix<T> keys(device, s.head_width(), s.tokens);  // transposed
      const PaddedMatrix<T> values(device, s.tokens, s.head_width());
      const PaddedMatrix<T> p(device, rows, s.tokens);
      const PaddedMatrix<T> sums(device, rows, s.head_width());
      keys.take_transposed(head.k, head.row);
      values.take(s.tokens, head.v, head.row);
      for (std::int64_t t = 0; t < s.tokens; t += kQueries) {
        const QueryBlock<T> block(s, t);
        const Factor<T> queries{head.q + t * head.row, head.row, 1};
        multiply_padded<T>(device, block.rows, block.keys, s.head_width(), queries, keys, p);
        softmax_rows(block, p);
        multiply_padded<T>(device, block.rows, s.head_width(), block.keys, {p.data(), p.row_length(), 1}, values, sums);
        sums.give(block.rows, out + t * s.width, s.width);
      }
    });
  });
}

void attention_grad(const Tensor& grad_y, const Tensor& qkv, std::int64_t heads, AttentionMask mask, Tensor& grad_qkv) {
  dispatch_floating(qkv.dtype(), "attention_grad", [&]<class T>() {
    const Device device = grad_y.device();
    const AttentionShape s{grad_y.size(0), grad_y.size(1), grad_y.size(2), heads, mask};
    const T* in = qkv.data<T>();          // [N, T, 3 W]
    const T* grads = grad_y.data<T>();    // [N, T, W]
    T* out = grad_qkv.mutable_data<T>();  // [N, T, 3 W]
    const std::int64_t rows = std::min(s.tokens, kQueries);
    const std::int64_t width = s.head_width();
    parallel_for(device, s.samples * s.heads, [&](std::int64_t h) {
      const SingleThreaded inside;
      const Head<const T> head(s, h, in);
      const Head<T> grad(s, h, out);
      const T* grad_out = head_of(s, h, grads);
      const PaddedMatrix<T> transposed_keys(device, width, s.tokens);
      const PaddedMatrix<T> transposed_values(device, width, s.tokens);
      const PaddedMatrix<T> keys(device, s.tokens, width);
      const PaddedMatrix<T> queries(device, rows, width);
      const PaddedMatrix<T> upstream(device, rows, width);
      const PaddedMatrix<T> p(device, rows, s.tokens);
      const PaddedMatrix<T> ds(device, rows, s.tokens);
      const PaddedMatrix<T> grad_q(device, rows, width);
      const PaddedMatrix<T> grad_k(device, s.tokens, width);
      const PaddedMatrix<T> grad_v(device, s.tokens, width);
      transposed_keys.take_transposed(head.k, head.row);
      transposed_values.take_transposed(head.v, head.row);
      keys.take(s.tokens, head.k, head.row);
      for (std::int64_t t = 0; t < s.tokens; t += kQueries) {
        const QueryBlock<T> block(s, t);
        const T* q = head.q + t * head.row;
        const T* grad_rows = grad_out + t * s.width;
        queries.take(block.rows, q, head.row);
        upstream.take(block.rows, grad_rows, s.width);
        multiply_padded<T>(device, block.rows, block.keys, width, {q, head.row, 1}, transposed_keys, p);
        softmax_rows(block, p);
        multiply_padded<T>(device, block.rows, block.keys, width, {grad_rows, s.width, 1}, transposed_values, ds);
        softmax_grad_rows(block, p, ds);
        multiply_padded<T>(device, block.rows, width, block.keys, {ds.data(), ds.row_length(), 1}, keys, grad_q);
        multiply_padded<T>(device, block.keys, width, block.rows, {ds.data(), 1, ds.row_length()}, queries, grad_k,
                           true);
        multiply_padded<T>(device, block.keys, width, block.rows, {p.data(), 1, p.row_length()}, upstream, grad_v,
                           true);
        grad_q.give(block.rows, grad.q + t * grad.row, grad.row);
      }
      grad_k.give(s.tokens, grad.k, grad.row);
      grad_v.give(s.tokens, grad.v, grad.row);
    });
  });
}

}  // namespace

void add_attention(Tables& tables) {
  tables.add<&Kernels::attention>("attention", attention);
  tables.add<&Kernels::attention_grad>("attention_grad", attention_grad);
}

}  // namespace stagecoach::cpu
