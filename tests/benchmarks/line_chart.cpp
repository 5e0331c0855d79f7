// Draws the figures of the scripts that measure: curves, read as JSON from standard input, written as SVG to standard
// output. {"title": "…", "x": "…", "logarithmic": false, "curves": {"measured": [[1, 20.5], [2, 13.1]], …}}
#include <nlohmann/json.hpp>

#include <iostream>
#include <iterator>
#include <string>

#include "chapters/compare/charts.h"
#include "core/base/parse_json.h"

int main() {
  using stagecoach::AxisKind;
  using stagecoach::Svg;
  const auto figure = stagecoach::parse_json<nlohmann::ordered_json>(
      std::string(std::istreambuf_iterator<char>(std::cin), {}), "the figure");
  std::vector<std::string> names;
  std::vector<Svg::Points> curves;
  for (const auto& [name, points] : figure.at("curves").items()) {
    names.push_back(name);
    curves.push_back(points.get<Svg::Points>());
  }
  const Svg::Box plot{60, 40, 580, 260};
  const Svg::Box legend{60, 340, 580, stagecoach::kLegendRow * static_cast<double>(names.size())};
  Svg svg;
  stagecoach::draw_curves(svg, plot,
                          {.title = figure.at("title"),
                           .x_name = figure.at("x"),
                           .x_kind = figure.at("logarithmic") ? AxisKind::logarithmic : AxisKind::linear,
                           .y_from_zero = true},
                          curves);
  stagecoach::draw_curve_legend(svg, legend, names);
  std::cout << svg.str(660, legend.bottom() + 10);
}
