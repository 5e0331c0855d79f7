#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "parallel/drawing/axis.h"
#include "parallel/drawing/timeline.h"

namespace stagecoach {
namespace {

// In measured timelines the shortest bar may be tiny. Showing its label would stretch the timeline too far.
constexpr double kMaxBlocks = 32;
constexpr double kMaxUnevenBlocks = 6;

constexpr int kColumnsPerTick = 10;

/// The mapping from time to columns.
struct Layout {
  double scale = 0;  ///< columns per unit of time
  int columns = 0;   ///< columns per block
  int blocks = 1;
};

/// One character and its background; 0 means no colour.
struct Cell {
  char character;
  int colour = 0;
};

int column_of(double time, const Layout& layout) { return static_cast<int>(std::lround(time * layout.scale)); }

template <class Body>
void for_each_bar(const TimelineChart& chart, const Body& body) {
  for (const TimelineRow& row : chart.rows) {
    for (const TimelineBar& bar : row.bars) {
      if (bar.end > bar.begin) {
        body(bar);
      }
    }
  }
}

/// Returns a layout with room for every label, or a single block if that would take too many blocks.
Layout layout_of(const TimelineChart& chart, int columns) {
  const Layout one_block{chart.length > 0 ? columns / chart.length : 0, columns, 1};
  double shortest = std::numeric_limits<double>::infinity();
  for_each_bar(chart, [&](const TimelineBar& bar) { shortest = std::min(shortest, bar.end - bar.begin); });
  if (!chart.shows_all_labels || !std::isfinite(shortest)) {
    return one_block;
  }
  // The shortest bar gets a whole number of columns, so that bars of equal duration are equally wide if all begin at
  // multiples of it.
  double cell = std::floor(columns * shortest / chart.length + 1e-9);
  bool is_even = true;
  for_each_bar(chart, [&](const TimelineBar& bar) {
    const double cells = (bar.end - bar.begin) / shortest;
    cell = std::max(cell, std::ceil(static_cast<double>(bar.label.size()) / cells - 1e-9));
    is_even = is_even && std::abs(bar.begin / shortest - std::round(bar.begin / shortest)) < 1e-6;
  });
  cell += is_even ? 0 : 1;  // rounding may take a column from a bar
  const double all_columns = chart.length / shortest * cell;
  const double block = cell <= columns ? std::floor(columns / cell) * cell : columns;
  const double blocks = std::ceil(all_columns / block - 1e-9);
  return blocks <= (is_even ? kMaxBlocks : kMaxUnevenBlocks)
             ? Layout{cell / shortest, static_cast<int>(block), static_cast<int>(blocks)}
             : one_block;
}

/// Writes the label into the first part of the bar with room for it; the ends of blocks divide a bar into parts.
void write_label(const TimelineBar& bar, int begin, int end, const Layout& layout, std::vector<Cell>& line) {
  const int length = static_cast<int>(bar.label.size());
  const auto write = [&](std::string_view text, int at) {
    for (const char character : text) {
      line[static_cast<std::size_t>(at++)].character = character;
    }
  };
  for (int part = begin; part < end;) {
    const int part_end = std::min(end, (part / layout.columns + 1) * layout.columns);
    if (part_end - part >= length) {
      return write(bar.label, part);
    }
    part = part_end;
  }
  write({&bar.mark, 1}, begin);
}

std::vector<Cell> draw_row(const TimelineRow& row, const Layout& layout) {
  std::vector<Cell> line(static_cast<std::size_t>(layout.columns) * static_cast<std::size_t>(layout.blocks), Cell{' '});
  const int columns = static_cast<int>(line.size());
  if (row.shows_idle) {
    std::fill_n(line.begin(), row.end ? std::min(column_of(*row.end, layout), columns) : columns, Cell{'.'});
  }
  int free = 0;  // the first column after the last bar
  for (const TimelineBar& bar : row.bars) {
    const int begin = std::max(free, column_of(bar.begin, layout));
    const int end = std::min(column_of(bar.end, layout), columns);
    if (end <= begin) {
      continue;  // too short to be seen
    }
    const int shade = bar.is_light ? bar.colour.terminal_light : bar.colour.terminal;
    std::fill(line.begin() + begin, line.begin() + end, Cell{bar.fill, shade});
    if (begin > 0 && line[static_cast<std::size_t>(begin) - 1].colour == shade) {
      line[static_cast<std::size_t>(begin)].colour = bar.colour.terminal_dark;
    }
    write_label(bar, begin, end, layout, line);
    free = end;
  }
  return line;
}

std::string background(int colour) { return colour == 0 ? "\033[0m" : fmt::format("\033[48;5;{}m\033[30m", colour); }

std::string text_of(const Cell* begin, const Cell* end, bool colours) {
  std::string text;
  while (end != begin && end[-1].character == ' ') {
    --end;
  }
  for (const Cell* cell = begin; cell != end; ++cell) {
    if (colours && (cell == begin || cell[-1].colour != cell->colour)) {
      text += background(cell->colour);
    }
    text += cell->character;
  }
  return colours ? text + "\033[0m" : text;
}

std::string axis_name(const TimelineChart& chart) { return chart.unit == "s" ? "ms" : "time"; }

/// Returns the numbers above the block that begins at column `begin`.
std::string axis_of(const TimelineChart& chart, const Layout& layout, int begin, int columns) {
  const double factor = chart.unit == "s" ? 1e3 : 1;
  const double low = begin / layout.scale * factor;
  const double high = (begin + columns) / layout.scale * factor;
  std::string line;
  for (const Tick& tick : nice_ticks(low, high, columns / kColumnsPerTick)) {
    const auto column = static_cast<std::size_t>(column_of(tick.value / factor, layout) - begin);
    if ((line.empty() || column > line.size()) &&
        column + tick.label.size() <= static_cast<std::size_t>(layout.columns)) {
      line.resize(column, ' ');
      line += tick.label;
    }
  }
  return line;
}

/// Returns the meaning of marks and colours, in lines that fit.
std::string legend_of(const TimelineChart& chart, std::size_t indent, const Terminal& terminal) {
  std::vector<std::pair<std::string, int>> names;  // with their backgrounds
  for (const LegendEntry& entry : chart.legend) {
    names.emplace_back(entry.name, terminal.colours ? entry.colour.terminal : 0);
  }
  if (!chart.idle_name.empty()) {
    names.emplace_back(". " + chart.idle_name, 0);
  }
  if (!chart.note.empty()) {
    names.emplace_back(chart.note, 0);
  }
  const auto columns = static_cast<std::size_t>(terminal.columns);
  std::string text;
  std::size_t used = 0;  // columns used in the last line
  for (const auto& [name, colour] : names) {
    if (used == 0 || used + 2 + name.size() > columns) {
      text += fmt::format("{}{:<{}}", used == 0 ? "" : ",\n", "", indent);
      used = indent;
    } else {
      text += ", ";
      used += 2;
    }
    text += colour == 0 ? name : background(colour) + name + background(0);
    used += name.size();
  }
  return names.empty() ? "" : text + "\n";
}

}  // namespace

std::string timeline_text(const TimelineChart& chart, const Terminal& terminal) {
  const bool has_axis = chart.length > 0;
  std::size_t indent = has_axis ? axis_name(chart).size() + 2 : 0;
  for (const TimelineRow& row : chart.rows) {
    indent = std::max(indent, row.name.size() + 2);
  }
  const Layout layout = layout_of(chart, std::max(terminal.columns - static_cast<int>(indent), 1));
  std::vector<std::vector<Cell>> lines;
  for (const TimelineRow& row : chart.rows) {
    lines.push_back(draw_row(row, layout));
  }
  std::string text;
  for (int block = 0; block < layout.blocks; ++block) {
    const int begin = block * layout.columns;
    const int columns = std::min(layout.columns, std::max(column_of(chart.length, layout) - begin, 1));
    if (has_axis) {
      text += fmt::format("{:<{}}{}\n", axis_name(chart), indent, axis_of(chart, layout, begin, columns));
    }
    for (std::size_t r = 0; r < lines.size(); ++r) {
      const Cell* first = lines[r].data() + begin;
      text += fmt::format("{:<{}}{}\n", chart.rows[r].name, indent, text_of(first, first + columns, terminal.colours));
    }
  }
  return text + legend_of(chart, indent, terminal);
}

}  // namespace stagecoach
