#include "core/kernels/cpu/attention.h"

#include <cstring>
#include <limits>

#include "core/kernels/cpu/lanes.h"
#include "core/kernels/cpu/matrix_product.h"
#include "core/kernels/cpu/tables.h"
#include "core/kernels/cpu/transpose.h"
#include "core/kernels/cpu/vec_exp.h"
#include "core/kernels/cpu/workspace.h"
#include "core/kernels/groups.h"
#include "core/parallel_for.h"

namespace stagecoach::cpu {
namespace {

/// The number of queries whose probabilities are held at a time.
constexpr std::int64_t kQueries = 64;

/// A matrix in working memory, whose rows are whole vectors: the columns after the last one are zeros.
template <class T>
class PaddedMatrix {
 public:
  PaddedMatrix(Device device, std::int64_t rows, std::int64_t columns)
      : rows_(rows), columns_(columns), row_(groups_of<T>(columns) * kLanes<T>), memory_(device, rows * row_) {
    std::fill_n(data(), rows * row_, T(0));
  }
  T* data() const { return memory_.data(); }
  T* row(std::int64_t r) const { return data() + r * row_; }
  std::int64_t row_length() const { return row_; }

  /// Takes the first `rows` rows from a matrix with rows `from_row` apart.
  const PaddedMatrix& take(std::int64_t rows, const T* from, std::int64_t from_row) const {
    for (std::int64_t r = 0; r < rows; ++r) {
      std::memcpy(row(r), from + r * from_row, bytes());
    }
    return *this;
  }
  /// Takes the transpose of a matrix, [columns, rows] here.
  const PaddedMatrix& take_transposed(const T* from, std::int64_t from_row) const {
    transpose_block(columns_, rows_, from, from_row, data(), row_);
    return *this;
  }
  /// Writes the first `rows` rows.
  void give(std::int64_t rows, T* to, std::int64_t to_row) const {
    for (std::int64_t r = 0; r < rows; ++r) {
      std::memcpy(to + r * to_row, row(r), bytes());
    }
  }

 private:
  std::size_t bytes() const { return static_cast<std::size_t>(columns_) * sizeof(T); }
  std::int64_t rows_;
  std::int64_t columns_;
  std::int64_t row_;
  Workspace<T> memory_;
};

/// The first factor of a product: element [r, i] is at data + r * row + i * step.
template <class T>
struct Factor {
  const T* data;
  std::int64_t row;
  std::int64_t step;
};

/// out [rows, columns] = a [rows, k] times b [k, columns], or is increased by it; columns in whole vectors.
template <class T>
void multiply_padded(Device device, std::int64_t rows, std::int64_t columns, std::int64_t k, const Factor<T>& a,
                     const PaddedMatrix<T>& b, const PaddedMatrix<T>& out, bool add = false) {
  multiply<T>(device, rows, k, groups_of<T>(columns), a.data, a.row, a.step, {b.data(), b.row_length()},
              {out.data(), out.row_length()}, add);
}

/// A block of queries, and the keys that they see.
template <class T>
struct QueryBlock {
  QueryBlock(const AttentionShape& shape, std::int64_t first)
      : s(shape), begin(first), rows(std::min(kQueries, s.tokens - begin)), keys(s.visible(begin + rows - 1)) {}
  const AttentionShape& s;
  std::int64_t begin;  // the first query
  std::int64_t rows;   // their number
  std::int64_t keys;   // that the last one sees
  /// Returns the length of the part of row r that the query sees, in whole vectors.
  std::int64_t length(std::int64_t r) const { return groups_of<T>(s.visible(begin + r)) * kLanes<T>; }
  /// Sets what query r does not see, up to column `end`; by vectors, as vectors are loaded from there soon.
  void fill_hidden(T* row, std::int64_t r, std::int64_t end, T value) const {
    const std::int64_t visible = s.visible(begin + r);
    Vec<T> lanes;
    for (int lane = 0; lane < kLanes<T>; ++lane) {
      lanes[lane] = static_cast<T>(lane);
    }
    for (std::int64_t j = visible / kLanes<T> * kLanes<T>; j < end; j += kLanes<T>) {
      store(lanes < broadcast(static_cast<T>(visible - j)) ? load(row + j) : broadcast(value), row + j);
    }
  }
};

/// Replaces the rows by softmax(scale * row); what a query does not see becomes zeros.
template <class T>
void softmax_rows(const QueryBlock<T>& block, const PaddedMatrix<T>& scores) {
  const T scale = block.s.template scale<T>();
  for (std::int64_t r = 0; r < block.rows; ++r) {
    T* row = scores.row(r);
    const std::int64_t length = block.length(r);
    block.fill_hidden(row, r, length, -std::numeric_limits<T>::infinity());
    Vec<T> largest = load(row);
    for (std::int64_t j = kLanes<T>; j < length; j += kLanes<T>) {
      const Vec<T> values = load(row + j);
      largest = values > largest ? values : largest;
    }
    T most = largest[0];
    for (int lane = 1; lane < kLanes<T>; ++lane) {
      most = std::max<T>(most, largest[lane]);
    }
    for (std::int64_t j = 0; j < length; j += kLanes<T>) {
      store(exp<T>((load(row + j) - broadcast(most)) * broadcast(scale)), row + j);
    }
    block.fill_hidden(row, r, block.length(block.rows - 1), T(0));
    Vec<T> sum{};
    for (std::int64_t j = 0; j < length; j += kLanes<T>) {
      sum += load(row + j);
    }
    const Vec<T> share = broadcast(1 / sum_of_lanes<T>(sum));
    for (std::int64_t j = 0; j < length; j += kLanes<T>) {
      store(load(row + j) * share, row + j);
    }
  }
}

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
