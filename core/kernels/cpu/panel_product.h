#pragma once
/// @file
/// A matrix product, out [M, N] = a [M, K] times b [K, N], whose factor b need not be stored. Panels of b, as wide as a
/// register tile and short enough for the first-level cache, are created when they are needed, and each is multiplied
/// by all rows of `a` before it is discarded (Goto and van de Geijn 2008, section 4).
///
/// Every sum is taken in the order of K: a sum that is kept in memory until the next panel continues where it stopped.

#include <algorithm>
#include <cstdint>

#include "core/kernels/cpu/tile.h"
#include "core/kernels/cpu/workspace.h"
#include "core/parallel_for.h"

namespace stagecoach::cpu {

/// The number of columns of a panel.
template <class T>
inline constexpr std::int64_t kPanel = max_columns(kMaxRows) * kLanes<T>;

/// The maximum number of rows of a panel: with floats and AVX2 a panel takes 16 KiB, half of a typical first-level
/// cache; with AVX-512 it takes 45 KiB.
template <class T>
inline constexpr std::int64_t kPanelK = 256 - 256 % kPanel<T>;

/// The number of panels for which each part of `a` is read once.
inline constexpr std::int64_t kPanelsAtOnce = 4;

/// The number of rows of `a` that are processed for all these panels before the next rows: they stay in the
/// second-level cache.
inline constexpr std::int64_t kRowsAtOnce = 8 * kMaxRows;

/// sums [panels, rows, kPanel] += a [rows, k] times b [panels, k, kPanel].
template <class T>
void add_panels(std::int64_t rows, std::int64_t k, std::int64_t panels, const T* a, std::int64_t a_row, const T* b,
                T* sums) {
  TileCall<T> call{};
  call.taps = {1, 1, k};
  call.x_steps = {0, 0, kPanel<T>, kLanes<T>};
  call.weight_steps = {0, 0, 1, a_row};
  call.y_row = kPanel<T>;
  call.y_column = kLanes<T>;
  call.add = true;
  for (std::int64_t top = 0; top < rows; top += kRowsAtOnce) {
    const Parts tiles(std::min(kRowsAtOnce, rows - top), kMaxRows);
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      call.x = b + panel * k * kPanel<T>;
      for (std::int64_t tile = 0; tile < tiles.count; ++tile) {
        const std::int64_t row = top + tiles.begin(tile);
        call.weight = a + row * a_row;
        call.y = sums + (panel * rows + row) * kPanel<T>;
        run_tile<T>(tiles.size(tile), max_columns(kMaxRows), call);
      }
    }
  }
}

/// Initialises the sums [M, kPanel] of a panel to bias [M], or to 0 if `bias` is null.
template <class T>
void start_sums(std::int64_t rows, const T* bias, T* sums) {
  for (std::int64_t r = 0; r < rows; ++r) {
    std::fill_n(sums + r * kPanel<T>, kPanel<T>, bias != nullptr ? bias[r] : T(0));
  }
}

struct ProductShape {
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
};

/// fill(n, k, count, to) writes rows k … k + count - 1 of the panel that starts at column n to `to` [count, kPanel],
/// and 0 after the last column; write(n, sums) stores the results [M, kPanel] of the panel.
template <class T, class Fill, class Write>
void panel_product(Device device, const ProductShape& shape, const T* a, const T* bias, const Fill& fill,
                   const Write& write) {
  constexpr std::int64_t kColumnsAtOnce = kPanelsAtOnce * kPanel<T>;
  parallel_for(device, (shape.n + kColumnsAtOnce - 1) / kColumnsAtOnce, [&](std::int64_t task) {
    const std::int64_t first = task * kColumnsAtOnce;
    const std::int64_t panels = (std::min(kColumnsAtOnce, shape.n - first) + kPanel<T> - 1) / kPanel<T>;
    const Workspace<T> b(device, panels * std::min(kPanelK<T>, shape.k) * kPanel<T>);  // [panels, count, kPanel]
    const Workspace<T> sums(device, panels * shape.m * kPanel<T>);                     // [panels, M, kPanel]
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      start_sums(shape.m, bias, sums.data() + panel * shape.m * kPanel<T>);
    }
    for (std::int64_t k = 0; k < shape.k; k += kPanelK<T>) {
      const std::int64_t count = std::min(kPanelK<T>, shape.k - k);
      for (std::int64_t panel = 0; panel < panels; ++panel) {
        fill(first + panel * kPanel<T>, k, count, b.data() + panel * count * kPanel<T>);
      }
      add_panels(shape.m, count, panels, a + k, shape.k, b.data(), sums.data());
    }
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      write(first + panel * kPanel<T>, sums.data() + panel * shape.m * kPanel<T>);
    }
  });
}

}  // namespace stagecoach::cpu
