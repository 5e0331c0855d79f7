#pragma once
/// @file
/// What the kernels of attention share: they take a block of queries at a time, with all keys.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/kernels/cpu/attention.h"
#include "core/kernels/cpu/lanes.h"
#include "core/kernels/cpu/matrix_product.h"
#include "core/kernels/cpu/transpose.h"
#include "core/kernels/cpu/vec_exp.h"
#include "core/kernels/cpu/workspace.h"
#include "core/parallel_for.h"

namespace stagecoach::cpu {

/// The number of queries whose probabilities are held at a time.
inline constexpr std::int64_t kQueries = 64;

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

/// Replaces the rows by softmax(scale * row); what a query does not see becomes zeros. Writes log(sum of exp(scale *
/// row)) of each query to `log_sums`, unless that is null.
template <class T>
void softmax_rows(const QueryBlock<T>& block, const PaddedMatrix<T>& scores, T* log_sums = nullptr) {
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
    const T total = sum_of_lanes<T>(sum);
    if (log_sums != nullptr) {
      log_sums[block.begin + r] = most * scale + std::log(total);
    }
    const Vec<T> share = broadcast(1 / total);
    for (std::int64_t j = 0; j < length; j += kLanes<T>) {
      store(load(row + j) * share, row + j);
    }
  }
}

}  // namespace stagecoach::cpu
