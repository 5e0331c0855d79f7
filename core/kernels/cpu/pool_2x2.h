#pragma once
/// @file
/// Max pooling with non-overlapping windows of 2 x 2, many windows at a time and without branches: which of four pixels
/// is largest cannot be predicted.

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "core/kernels/cpu/vec.h"

namespace stagecoach::cpu {

/// `Lanes` adjacent windows. The indices of a window's pixels in the plane are `at + 2 * lane`, the next one, and the
/// two `below` them.
template <class T, int Lanes>
class PoolWindows {
 public:
  PoolWindows(std::int64_t at, std::int64_t below) : at_(indices(at, Lane{})), below_(static_cast<Index>(below)) {}

  /// Computes the largest pixel of each window in two rows, and its index: the first among equals. NaN wins and
  /// propagates: a diverged run must be visible.
  void pool(const T* upper, const T* lower, T* y, std::int32_t* argmax) const {
    const Pixels above = split(upper, Lane{});
    const Pixels below = split(lower, Lane{});
    Values best = above.left;
    Indices index = at_;
    const auto consider = [&](const Values& value, const Indices& where) {
      const Indices take = (value > best) | (value != value);
      best = take ? value : best;
      index = take ? where : index;
    };
    consider(above.right, at_ + 1);
    consider(below.left, at_ + below_);
    consider(below.right, at_ + below_ + 1);
    store<T, Lanes>(best, y);
    store<std::int32_t, Lanes>(__builtin_convertvector(index, Argmax), argmax);
  }

  /// Computes the backward: passes the gradient to the largest pixel, and 0 to the other three.
  void unpool(const T* grad_y, const std::int32_t* argmax, T* upper, T* lower) const {
    const Values grad = load<T, Lanes>(grad_y);
    const Argmax narrow = load<std::int32_t, Lanes>(argmax);
    const Indices index = __builtin_convertvector(narrow, Indices) - at_;
    const auto where = [&](Index here) { return index == here ? grad : Values{}; };
    join({where(0), where(1)}, upper, Lane{});
    join({where(below_), where(below_ + 1)}, lower, Lane{});
  }

 private:
  using Lane = std::make_integer_sequence<int, Lanes>;
  using Index = std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t>;
  using Values = Vec<T, Lanes>;
  using Indices = Vec<Index, Lanes>;
  using Argmax = Vec<std::int32_t, Lanes>;

  template <int... I>
  static Indices indices(std::int64_t at, std::integer_sequence<int, I...>) {
    return Indices{(2 * I)...} + static_cast<Index>(at);
  }

  /// The pixels of a row: each window has two adjacent ones.
  struct Pixels {
    Values left;
    Values right;
  };

  template <int... I>
  static Pixels split(const T* row, std::integer_sequence<int, I...>) {
    const Values first = load<T, Lanes>(row);
    const Values second = load<T, Lanes>(row + Lanes);
    return {.left = __builtin_shufflevector(first, second, (2 * I)...),
            .right = __builtin_shufflevector(first, second, (2 * I + 1)...)};
  }

  /// Returns the index at which a shuffle of left and right finds pixel i of a row.
  static constexpr int in_turn(int i) { return i % 2 == 0 ? i / 2 : Lanes + i / 2; }

  template <int... I>
  static void join(const Pixels& pixels, T* row, std::integer_sequence<int, I...>) {
    store<T, Lanes>(__builtin_shufflevector(pixels.left, pixels.right, in_turn(I)...), row);
    store<T, Lanes>(__builtin_shufflevector(pixels.left, pixels.right, in_turn(Lanes + I)...), row + Lanes);
  }

  Indices at_;
  Index below_;
};

/// Calls `with(windows, p, q)` for windows in row p from column q on, until all rows x columns windows of a plane of
/// the given width have been visited: as many at a time as a vector holds and a row has. The last windows of a row
/// overlap the previous ones, so that there is no remainder: computing a window twice gives the same result.
template <class T, int Lanes = kLanes<T>, class With>
void for_windows_2x2(std::int64_t width, std::int64_t rows, std::int64_t columns, const With& with) {
  if constexpr (Lanes > 1) {
    if (columns < Lanes) {
      return for_windows_2x2<T, Lanes / 2>(width, rows, columns, with);
    }
  }
  for (std::int64_t p = 0; p < rows; ++p) {
    for (std::int64_t done = 0; done < columns; done += Lanes) {
      const std::int64_t q = std::min(done, columns - Lanes);
      with(PoolWindows<T, Lanes>(2 * (p * width + q), width), p, q);
    }
  }
}

}  // namespace stagecoach::cpu
