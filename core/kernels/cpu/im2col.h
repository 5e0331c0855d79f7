#pragma once
/// @file
/// Implicit im2col: the inputs of a convolution as a matrix [C K K, N P Q], whose column (n, p, q) holds the inputs
/// under the window at that position. The matrix is never stored (it is K K times as large as the input); panels of it
/// are gathered when they are needed.
///
/// The address of an element is the start of its column plus the offset of its row. Positions that are contiguous in
/// memory form a run, which is copied at once.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/kernels/cpu/panel_product.h"
#include "core/kernels/cpu/workspace.h"

namespace stagecoach::cpu {

/// Positions (n, p, q).
struct Grid {
  std::int64_t samples;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t count() const { return samples * rows * columns; }
};

/// The memory layout of a grid's positions: the first one, and the strides to the next image, row and column.
struct GridLayout {
  std::int64_t first;
  std::int64_t sample;
  std::int64_t row;
  std::int64_t column;
};

/// A grid's positions, divided into runs that are contiguous in memory. All have the same length, which divides a
/// panel.
template <class T>
class Runs {
 public:
  Runs(Device device, const Grid& grid, const GridLayout& layout)
      : length_(length_of(grid, layout)), count_(grid.count() / length_), starts_(device, count_) {
    for (std::int64_t i = 0; i < count_; ++i) {
      const std::int64_t position = i * length_;
      const std::int64_t n = position / (grid.rows * grid.columns);
      const std::int64_t p = position / grid.columns % grid.rows;
      const std::int64_t q = position % grid.columns;
      starts_.data()[i] = layout.first + n * layout.sample + p * layout.row + q * layout.column;
    }
  }

  /// Calls body(starts, count, length), where length is a compile-time constant, for the runs of the panel that begins
  /// at `position`.
  template <class Body>
  void visit(std::int64_t position, const Body& body) const {
    const std::int64_t first = position / length_;
    const std::int64_t count = std::min(kPanel<T> / length_, count_ - first);
    const auto call = [&]<std::int64_t Length>() {
      if constexpr (kPanel<T> % Length == 0) {
        body(starts_.data() + first, count, std::integral_constant<std::int64_t, Length>());
      }
    };
    switch (length_) {
      case 16:
        return call.template operator()<16>();
      case 8:
        return call.template operator()<8>();
      case 4:
        return call.template operator()<4>();
      case 2:
        return call.template operator()<2>();
      default:
        return call.template operator()<1>();
    }
  }

 private:
  static std::int64_t length_of(const Grid& grid, const GridLayout& layout) {
    if (layout.column != 1) {
      return 1;
    }
    const std::int64_t neighbours = layout.row == grid.columns ? grid.rows * grid.columns : grid.columns;
    std::int64_t length = 16;
    while (neighbours % length != 0 || kPanel<T> % length != 0) {
      length /= 2;
    }
    return length;
  }

  std::int64_t length_;
  std::int64_t count_;
  Workspace<std::int64_t> starts_;
};

/// The matrix [C K K, N P Q].
template <class T>
class Im2col {
 public:
  /// The rows enumerate three nested loops, whose lengths are `taps`, outermost first; shift(c, i, j) is the offset of
  /// a row in `source`. All inputs under the window must exist: the caller pads images where the window extends beyond
  /// the border.
  template <class Shift>
  Im2col(Device device, const Grid& grid, const GridLayout& layout, const Taps& taps, const Shift& shift,
         const T* source)
      : runs_(device, grid, layout), shifts_(device, taps.channels * taps.rows * taps.columns), source_(source) {
    std::int64_t* next = shifts_.data();
    for (std::int64_t c = 0; c < taps.channels; ++c) {
      for (std::int64_t i = 0; i < taps.rows; ++i) {
        for (std::int64_t j = 0; j < taps.columns; ++j) {
          *next++ = shift(c, i, j);
        }
      }
    }
  }

  /// Copies rows k … k + rows - 1 of the panel that begins at `position` to `panel` [rows, kPanel]; writes 0 after the
  /// last position.
  void gather(std::int64_t position, std::int64_t k, std::int64_t rows, T* panel) const {
    runs_.visit(position, [&](const std::int64_t* starts, std::int64_t count, auto length) {
      constexpr std::int64_t kRuns = kPanel<T> / decltype(length)::value;
      std::array<const T*, kRuns> sources{};  // local, so that the compiler can keep them in registers
      std::transform(starts, starts + count, sources.begin(), [&](std::int64_t start) { return source_ + start; });
      const auto copy_rows = [&](auto runs) {
        for (std::int64_t r = 0; r < rows; ++r) {
          const std::int64_t shift = shifts_.data()[k + r];
          for (std::int64_t i = 0; i < runs; ++i) {
            std::memcpy(panel + r * kPanel<T> + i * length, sources[i] + shift, length * sizeof(T));
          }
        }
      };
      if (count == kRuns) {
        copy_rows(std::integral_constant<std::int64_t, kRuns>());
      } else {
        std::fill_n(panel, rows * kPanel<T>, T(0));
        copy_rows(count);
      }
    });
  }

 private:
  Runs<T> runs_;
  Workspace<std::int64_t> shifts_;
  const T* source_;
};

}  // namespace stagecoach::cpu
