#pragma once
/// @file
/// What a convolution's positions meet, as a matrix [D, N P Q]: column (n, p, q) holds the D = C K K inputs under the
/// window there. The matrix is never built (it is K K times as large as the input); panels of it are gathered.
///
/// The address of an element is a start that belongs to its column plus a shift that belongs to its row. Positions side
/// by side in memory make a run, which is copied at once.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/kernels/cpu/panel_product.h"
#include "core/kernels/cpu/scratch.h"

namespace stagecoach::cpu {

/// Positions (n, p, q).
struct Grid {
  std::int64_t samples;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t count() const { return samples * rows * columns; }
};

/// Where a grid's positions lie in a tensor: the first one, and the steps to the next picture, row and column.
struct Places {
  std::int64_t first;
  std::int64_t sample;
  std::int64_t row;
  std::int64_t column;
};

/// A grid's positions, cut into runs of neighbours in memory. All have the same length, which divides a panel.
template <class T>
class Runs {
 public:
  Runs(Device device, const Grid& grid, const Places& places)
      : length_(length_of(grid, places)), count_(grid.count() / length_), starts_(device, count_) {
    for (std::int64_t i = 0; i < count_; ++i) {
      const std::int64_t position = i * length_;
      const std::int64_t n = position / (grid.rows * grid.columns);
      const std::int64_t p = position / grid.columns % grid.rows;
      const std::int64_t q = position % grid.columns;
      starts_.data()[i] = places.first + n * places.sample + p * places.row + q * places.column;
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
  static std::int64_t length_of(const Grid& grid, const Places& places) {
    if (places.column != 1) {
      return 1;
    }
    const std::int64_t neighbours = places.row == grid.columns ? grid.rows * grid.columns : grid.columns;
    std::int64_t length = 16;
    while (neighbours % length != 0 || kPanel<T> % length != 0) {
      length /= 2;
    }
    return length;
  }

  std::int64_t length_;
  std::int64_t count_;
  Scratch<std::int64_t> starts_;
};

/// The matrix [D, N P Q] itself.
template <class T>
class Patches {
 public:
  /// The rows are those of three loops, whose lengths are `taps`, outermost first; shift(c, i, j) is how far a step of
  /// them leads in `source`. All that the window meets must exist: where it looks over the border, the caller pads.
  template <class Shift>
  Patches(Device device, const Grid& grid, const Places& places, const Taps& taps, const Shift& shift, const T* source)
      : runs_(device, grid, places), shifts_(device, taps.channels * taps.rows * taps.columns), source_(source) {
    std::int64_t* next = shifts_.data();
    for (std::int64_t c = 0; c < taps.channels; ++c) {
      for (std::int64_t i = 0; i < taps.rows; ++i) {
        for (std::int64_t j = 0; j < taps.columns; ++j) {
          *next++ = shift(c, i, j);
        }
      }
    }
  }

  /// Rows d … d + depth - 1 of the panel that begins at `position`, to `panel` [depth, kPanel]; 0 behind the last one.
  void gather(std::int64_t position, std::int64_t d, std::int64_t depth, T* panel) const {
    runs_.visit(position, [&](const std::int64_t* starts, std::int64_t count, auto length) {
      if (count * length < kPanel<T>) {
        std::fill_n(panel, depth * kPanel<T>, T(0));
      }
      for (std::int64_t r = 0; r < depth; ++r) {
        const std::int64_t shift = shifts_.data()[d + r];
        for (std::int64_t i = 0; i < count; ++i) {
          std::memcpy(panel + r * kPanel<T> + i * length, source_ + (starts[i] + shift), length * sizeof(T));
        }
      }
    });
  }

 private:
  Runs<T> runs_;
  Scratch<std::int64_t> shifts_;
  const T* source_;
};

}  // namespace stagecoach::cpu
