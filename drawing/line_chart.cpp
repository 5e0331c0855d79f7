/// @file
/// Draws a table of numbers as curves: what scripts that measure use for their figures.

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/printable.h"
#include "drawing/charts.h"

namespace stagecoach {
namespace {

/// The first line names the columns; the first column is the axis, and each other one a curve.
struct Table {
  std::vector<std::string> names;
  std::vector<Svg::Points> curves;
};

std::vector<std::string> cells_of(const std::string& line) {
  std::istringstream text(line);
  std::vector<std::string> cells;
  for (std::string cell; std::getline(text, cell, ',');) {
    cells.push_back(cell);
  }
  return cells;
}

double number_in(const std::string& cell, int line) {
  double number = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), number);
  if (error != std::errc() || end != cell.data() + cell.size()) {
    throw DataError(fmt::format("line {}: expected a number, got '{}'", line, printable(cell)));
  }
  return number;
}

/// A place on the axis; a value may also be NaN, which is a gap.
double place_in(const std::string& cell, int line, AxisKind kind) {
  const double place = number_in(cell, line);
  if (!std::isfinite(place) || (kind == AxisKind::logarithmic && place <= 0)) {
    throw DataError(fmt::format("line {}: '{}' has no place on the axis: expected a finite number{}", line,
                                printable(cell), kind == AxisKind::logarithmic ? " above 0" : ""));
  }
  return place;
}

Table read_table(std::istream& text, AxisKind kind) {
  Table table;
  std::string line;
  for (int number = 1; std::getline(text, line); ++number) {
    const std::vector<std::string> cells = cells_of(line);
    if (number == 1) {
      table.names = cells;
      table.curves.resize(cells.empty() ? 0 : cells.size() - 1);
      continue;
    }
    if (cells.size() != table.names.size()) {
      throw DataError(fmt::format("line {}: expected {} values, got {}", number, table.names.size(), cells.size()));
    }
    for (std::size_t i = 1; i < cells.size(); ++i) {
      table.curves[i - 1].emplace_back(place_in(cells[0], number, kind), number_in(cells[i], number));
    }
  }
  if (table.curves.empty() || table.curves.front().empty()) {
    throw DataError("the table is empty: expected a line of names and lines of numbers, separated by commas");
  }
  return table;
}

std::string draw(const Table& table, const std::string& title, AxisKind kind) {
  const Svg::Box plot{60, 40, 580, 260};
  const Svg::Box legend{60, 340, 580, kLegendRow * static_cast<double>(table.curves.size())};
  Svg svg;
  draw_curves(svg, plot, {.title = title, .x_name = table.names.front(), .x_kind = kind, .y_from_zero = true},
              table.curves);
  draw_curve_legend(svg, legend, {table.names.begin() + 1, table.names.end()});
  return svg.str(660, legend.bottom() + 10);
}

int run(int argc, const char* const* argv) {
  std::string title;
  bool is_logarithmic = false;
  CLI::App app("Draws a table on standard input, with commas between its cells, as an SVG picture on standard output.",
               "line_chart");
  app.add_option("--title", title, "What the curves are");
  app.add_flag("--log-x", is_logarithmic, "A logarithmic axis with a tick at each value");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const AxisKind kind = is_logarithmic ? AxisKind::logarithmic : AxisKind::linear;
  std::cout << draw(read_table(std::cin, kind), title, kind) << std::flush;
  return std::cout ? 0 : 4;
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) {
  try {
    return stagecoach::run(argc, argv);
  } catch (const stagecoach::DataError& error) {
    fmt::print(stderr, "line_chart: {}\n", error.what());
    return 3;
  }
}
