// Prints a comparison as a table (comparison.h).

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <vector>

#include "chapters/compare/comparison.h"
#include "core/base/units.h"

namespace stagecoach {
namespace {

constexpr const char* kUnknown = "-";
constexpr const char* kIdealSpeedUp = "ideal speed-up";

/// A heading, and the function that makes the cell of a run below it.
struct Column {
  std::string heading;
  std::function<std::string(const RunSummary&)> cell;
  bool is_text = false;       ///< aligned left; numbers are aligned right
  bool hide_unknown = false;  ///< omitted in every form if it is unknown for all runs
};

/// Returns the value in the given fmt format, or "-" if it is unknown.
template <class Value>
std::string text_of(const char* format, const std::optional<Value>& value) {
  return value ? fmt::format(fmt::runtime(format), *value) : kUnknown;
}

std::string percent(const std::optional<double>& share) {
  return share ? fmt::format("{:.1f}%", 100 * *share) : kUnknown;
}

std::string mebibytes(double bytes) { return fmt::format("{:.1f}", bytes / kMiB); }

/// Returns the peak memory of all ranks, in MiB, if they are few; otherwise only the largest.
std::string peaks(const RunSummary& run) {
  constexpr std::size_t kShort = 4;
  const auto text = [](std::int64_t bytes) { return mebibytes(static_cast<double>(bytes)); };
  if (run.peak_bytes.empty()) {
    return kUnknown;
  }
  if (run.peak_bytes.size() > kShort) {
    const auto largest = std::max_element(run.peak_bytes.begin(), run.peak_bytes.end());
    return fmt::format("{} (rank {})", text(*largest), largest - run.peak_bytes.begin());
  }
  std::string all;
  for (const std::int64_t bytes : run.peak_bytes) {
    all += (all.empty() ? "" : " ") + text(bytes);
  }
  return all;
}

/// Returns the columns of a table of plans: the five numbers of a step.
const std::vector<Column>& plan_columns() {
  using Run = const RunSummary&;
  static const std::vector<Column> all{
      {"plan", [](Run r) { return r.name; }, true},
      {"ranks", [](Run r) { return text_of("{}", r.ranks); }},
      {"step time",
       [](Run r) {
         return r.clock == "units" ? fmt::format("{} units", r.seconds) : fmt::format("{:.1f} ms", 1e3 * r.seconds);
       }},
      {"speed-up", [](Run r) { return text_of("{:.2f}", r.speed_up); }},
      {"idle", [](Run r) { return percent(r.idle); }},
      {"peak MiB",
       [](Run r) {
         return r.peak_bytes.empty()
                    ? kUnknown
                    : mebibytes(static_cast<double>(*std::max_element(r.peak_bytes.begin(), r.peak_bytes.end())));
       }},
      {"MiB per link", [](Run r) { return r.link_bytes ? mebibytes(*r.link_bytes) : kUnknown; }},
      {"staleness", [](Run r) { return text_of("{}", r.staleness); }},
  };
  return all;
}

const std::vector<Column>& columns() {
  using Run = const RunSummary&;
  static const std::vector<Column> all{
      {"run", [](Run r) { return r.name; }, true},
      {"program", [](Run r) { return text_of("{}", r.program); }, true, true},
      {"schedule", [](Run r) { return text_of("{}", r.schedule); }, true, true},
      {"ranks", [](Run r) { return text_of("{}", r.ranks); }},
      {"clock", [](Run r) { return r.clock; }, true},
      {"epochs", [](Run r) { return r.epochs; }},
      {"epoch time", [](Run r) { return fmt::format("{:.3f} s", r.seconds); }},
      {"speed-up", [](Run r) { return text_of("{:.2f}", r.speed_up); }},
      {kIdealSpeedUp, [](Run r) { return text_of("{:.2f}", r.ideal_speed_up); }},
      {"idle", [](Run r) { return percent(r.idle); }},
      {"predicted idle", [](Run r) { return percent(r.predicted_idle); }},
      {"peak MiB", peaks},
      {"versions", [](Run r) { return r.versions.empty() ? kUnknown : fmt::format("{}", fmt::join(r.versions, " ")); },
       false, true},
      {"loss", [](Run r) { return fmt::format("{:#.4g}", r.losses.back().second); }},
      {"acc", [](Run r) { return text_of("{:.3f}", r.accuracy); }},
      {"test acc", [](Run r) { return text_of("{:.3f}", r.test_accuracy); }},
  };
  return all;
}

/// Returns how many terminal columns a text takes. fmt pads by columns: told to pad to the number of bytes, which is
/// never less than the number of columns, it adds the difference.
std::size_t width_of(const std::string& text) {
  return 2 * text.size() - fmt::format("{:<{}}", text, text.size()).size();
}

/// Escapes the characters that have a special meaning in a Markdown table.
std::string markdown(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    escaped += std::string("\\|*`<[").find(c) == std::string::npos ? "" : "\\";
    escaped += c;
  }
  return escaped;
}

/// Returns the cells row by row, with the headings first.
std::vector<std::vector<std::string>> cells(const std::vector<RunSummary>& runs, const std::vector<Column>& shown) {
  std::vector<std::vector<std::string>> rows(runs.size() + 1);
  for (const Column& column : shown) {
    rows[0].push_back(column.heading);
    for (std::size_t i = 0; i < runs.size(); ++i) {
      rows[i + 1].push_back(column.cell(runs[i]));
    }
  }
  return rows;
}

std::vector<std::size_t> widths_of(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows[0].size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], width_of(row[i]));
    }
  }
  return widths;
}

std::string plain_table(const std::vector<std::vector<std::string>>& rows, const std::vector<Column>& shown) {
  std::string table;
  const std::vector<std::size_t> widths = widths_of(rows);
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string fill(widths[i] - width_of(row[i]), ' ');
      line += (i == 0 ? "" : "  ") + (shown[i].is_text ? row[i] + fill : fill + row[i]);
    }
    table += line + "\n";
  }
  return table;
}

/// Removes columns until the table fits kTableWidth, as far as that helps; returns their headings. What the settings
/// say goes first, and then what the others imply.
std::vector<std::string> narrow(std::vector<Column>& shown, const std::vector<RunSummary>& runs) {
  std::vector<std::string> left_out;
  for (const char* heading : {"program", "clock", "epochs", "acc", "ranks", "predicted idle", "schedule", "versions",
                              "test acc", kIdealSpeedUp}) {
    const std::vector<std::size_t> widths = widths_of(cells(runs, shown));
    const std::size_t gaps = 2 * (widths.size() - 1);
    if (std::accumulate(widths.begin(), widths.end(), gaps) <= kTableWidth) {
      break;
    }
    if (std::erase_if(shown, [&](const Column& column) { return column.heading == heading; }) > 0) {
      left_out.emplace_back(heading);
    }
  }
  return left_out;
}

std::string markdown_table(const std::vector<std::vector<std::string>>& rows, const std::vector<Column>& shown) {
  std::string table;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (const std::string& cell : rows[r]) {
      table += "| " + markdown(cell) + " ";
    }
    table += "|\n";
    if (r == 0) {
      for (const Column& column : shown) {
        table += column.is_text ? "|---" : "|---:";
      }
      table += "|\n";
    }
  }
  return table;
}

/// Returns what the speed-ups are over, such as "a", or "a;\nfrom b on, over b": with one line per baseline.
std::string baseline_names(const Comparison& comparison, TableForm form) {
  std::string names;
  for (const std::size_t baseline : comparison.baselines) {
    const std::string& name = comparison.runs[baseline].name;
    const std::string shown = form == TableForm::markdown ? markdown(name) : name;
    names += names.empty() ? shown : fmt::format(";\nfrom {0} on, over {0}", shown);
  }
  return names;
}

}  // namespace

std::string comparison_table(const Comparison& comparison, TableForm form) {
  std::vector<Column> shown;
  for (const Column& column : comparison.are_plans ? plan_columns() : columns()) {
    const bool known = std::any_of(comparison.runs.begin(), comparison.runs.end(),
                                   [&](const RunSummary& run) { return column.cell(run) != kUnknown; });
    if (known || (form != TableForm::plain && !column.hide_unknown)) {
      shown.push_back(column);
    }
  }
  std::string left_out;
  if (form == TableForm::plain) {
    const std::vector<std::string> headings = narrow(shown, comparison.runs);
    left_out = headings.empty() ? "" : fmt::format("Left out: {}; --wide shows them.\n", fmt::join(headings, ", "));
  }
  const bool has_ideal =
      std::any_of(shown.begin(), shown.end(), [](const Column& column) { return column.heading == kIdealSpeedUp; });
  const auto rows = cells(comparison.runs, shown);
  if (comparison.are_plans) {
    return fmt::format(
        "{}\nOne step, as planned. Speed-up: over {}. Peak MiB: of the rank that needs most. MiB per link: over the "
        "busiest\none in a step. Staleness: updates that a gradient is late, at most.\n",
        form == TableForm::markdown ? markdown_table(rows, shown) : plain_table(rows, shown),
        baseline_names(comparison, form));
  }
  return fmt::format(
      "{}\n"
      "Epoch time, idle and predicted idle: medians without the first epoch. Speed-up: over {}.\n"
      "{}{}",
      form == TableForm::markdown ? markdown_table(rows, shown) : plain_table(rows, shown),
      baseline_names(comparison, form),
      has_ideal ? "Ideal speed-up: over one device when all ranks have equal work, ranks x (1 - ideal idle share).\n"
                : "",
      left_out);
}

}  // namespace stagecoach
