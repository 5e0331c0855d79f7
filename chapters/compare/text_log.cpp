// Reads text logs for read_run (run_record.h).

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <sstream>
#include <string_view>
#include <utility>

#include "chapters/compare/line_source.h"
#include "chapters/compare/run_record.h"
#include "core/base/parse.h"
#include "core/base/printable.h"
#include "core/base/throw_if.h"

namespace stagecoach {
namespace {

/// Reads a line from left to right.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}

  bool skip(std::string_view word) {
    const bool here = rest_.substr(0, word.size()) == word;
    rest_.remove_prefix(here ? word.size() : 0);
    return here;
  }

  /// Reads a number such as "1.97", "2e-05", "nan" or "-inf". If there is none, the position does not change.
  template <class Number>
  bool read(Number& value) {
    const auto [end, error] = parse_number(rest_, value);
    rest_.remove_prefix(error == std::errc() ? static_cast<std::size_t>(end - rest_.data()) : 0);
    return error == std::errc();
  }

  /// Returns the text before the next ", " and removes both; without a ", ", all remaining text.
  std::string_view field() {
    const std::string_view field = rest_.substr(0, rest_.find(", "));
    rest_.remove_prefix(std::min(rest_.size(), field.size() + 2));
    return field;
  }

  bool at_end() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

/// An epoch line and where it was found.
struct EpochLine {
  std::optional<EpochRecord> epoch;  ///< nothing if the line is damaged
  bool is_followed = false;          ///< whether the line has a second epoch
  bool has_unit = false;             ///< whether `accuracy` is a share for certain
  bool test_has_unit = false;        ///< likewise, of `test_accuracy`
  int number = 0;                    ///< of the line
  std::string prefix = {};           ///< the text before it
  std::string text = {};             ///< its first characters
};

/// Reads an accuracy such as "0.26" or "26%", and whether it has that sign.
bool read_accuracy(Scanner& text, std::optional<double>& accuracy, bool& has_unit) {
  double value = 0;
  const bool found = text.read(value);
  has_unit = found && (text.skip("%") || text.skip(" %"));
  if (found) {
    accuracy = has_unit ? value / 100 : value;
  }
  return found;
}

/// Reads one of the fields after the time. Unknown fields, which another framework may print, are ignored.
void read_field(std::string_view field, EpochLine& line) {
  EpochRecord& epoch = *line.epoch;
  double value = 0;
  if (field == "virtual" || field == "modelled") {
    epoch.clock = field;
  } else if (Scanner text(field); text.skip("test acc: ")) {
    read_accuracy(text, epoch.test_accuracy, line.test_has_unit);
  } else if (Scanner speed(field); speed.read(value) && speed.skip(" img/s")) {
    epoch.images_per_second = value;
  } else if (Scanner idle(field); idle.skip("idle ") && idle.read(value) && idle.skip("%")) {
    epoch.idle = value / 100;
    if (idle.skip(" (ideal ") && idle.read(value) && is_share(value / 100)) {
      epoch.ideal_idle = value / 100;
    }
  }
}

/// Returns the line without terminal escapes, such as "\033[K" or a colour.
std::string without_escapes(const std::string& line) {
  std::string plain;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line.compare(i, 2, "\033[") != 0) {
      plain += line[i];
      continue;
    }
    i = line.find_first_not_of("0123456789;?", i + 2);  // the letter that ends the code
    if (i == std::string::npos) {
      break;
    }
  }
  return plain;
}

/// The names in settings_table (chapters/common/settings.h) that matter for a comparison.
constexpr std::string_view kSettings[] = {"data",  "augment", "image-size", "model",        "depth",
                                          "width", "heads",   "batch-size", "microbatches", "schedule",
                                          "ranks", "clock",   "smoke",      "epochs"};

/// Reads a line of settings_table, such as "  batch-size    64". The heading of the table, on the line before, is the
/// program's name.
void read_setting(const std::string& line, const std::string& line_before, RunRecord& run) {
  constexpr std::size_t kValue = 16;  // two spaces, the name in 13 columns, a space
  if (line.size() <= kValue || line.compare(0, 2, "  ") != 0) {
    return;
  }
  const std::string name = line.substr(2, line.find(' ', 2) - 2);
  if (std::find(std::begin(kSettings), std::end(kSettings), name) == std::end(kSettings) ||
      line.find_first_not_of(' ', 2 + name.size()) != kValue) {
    return;
  }
  run.settings[name] = line.substr(kValue);
  if (!line_before.empty() && line_before.find(' ') == std::string::npos) {
    run.settings["program"] = line_before;
  }
}

/// Parses "Epoch: 3, Loss: 1.97, acc: 0.49, time cost: 1.83s", perhaps without the accuracy, optionally followed by ",
/// test acc: 0.48", ", 27310 img/s", ", idle 21.4% (ideal 20.0%)" or ", virtual". `epoch` has no value if the line has
/// another form.
EpochLine parse_epoch_line(std::string_view line) {
  EpochLine result{EpochRecord{}};
  EpochRecord& epoch = *result.epoch;
  Scanner text(line);
  if (!(text.skip("Epoch: ") && text.read(epoch.epoch) && text.skip(", Loss: ") && text.read(epoch.loss) &&
        (!text.skip(", acc: ") || read_accuracy(text, epoch.accuracy, result.has_unit)) && text.skip(", time cost: ") &&
        text.read(epoch.seconds) && text.skip("s") && is_epoch_number(epoch.epoch) && epoch.seconds >= 0 &&
        std::isfinite(epoch.seconds))) {
    return {};
  }
  while (!text.at_end()) {
    read_field(text.field(), result);
  }
  return result;
}

/// Returns the epoch line that is in `line`, after whatever a launcher or logger put before it. Nothing if there is
/// none.
std::optional<EpochLine> find_epoch_line(const std::string& line, int number) {
  constexpr std::string_view kBegin = "Epoch: ";
  const std::size_t last_time = line.rfind(", time cost: ");
  const std::size_t first = line.find(kBegin);
  if (last_time == line.npos || first > last_time) {
    return std::nullopt;
  }
  EpochLine found;
  std::size_t begin = first;  // of a damaged line, if none is sound
  for (std::size_t at = first; at < last_time; at = line.find(kBegin, at + 1)) {
    EpochLine here = parse_epoch_line(std::string_view(line).substr(at));
    if (found.epoch && here.epoch) {
      found.is_followed = true;
    } else if (here.epoch) {
      found = std::move(here);
      begin = at;
    }
  }
  found.number = number;
  found.prefix = line.substr(0, begin);
  found.text = line.substr(begin, 120);
  return found;
}

/// Calls body(line, number) for each line of the text, without terminal escapes. A progress bar returns to the start of
/// the line, so what follows a "\r" is a line too, after the tag of the launcher.
template <class Body>
void for_each_line(const std::string& text, const Body& body) {
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream parts(line);
    std::string tag;
    for (std::string part; std::getline(parts, part, '\r');) {
      part = without_escapes(part);
      body(part.starts_with(tag) ? part : tag + part, number);
      tag = tag.empty() ? launcher_tag(part) : tag;
    }
  }
}

/// Returns the epoch lines of one source, and adds a note about those of others. Throws DataError for a damaged one.
std::vector<EpochLine> lines_of_one_source(std::vector<EpochLine> lines, const std::string& where, RunRecord& run) {
  std::vector<LineSource> sources;  // of sound lines: a damaged one may be prose
  for (const EpochLine& line : lines) {
    if (line.epoch) {
      sources.push_back(source_of(line.prefix));
    }
  }
  const LineSource source = sources.empty() ? LineSource{} : choose_source(sources, where);
  const auto others = std::stable_partition(lines.begin(), lines.end(),
                                            [&](const EpochLine& line) { return source_of(line.prefix) == source; });
  const auto left_out = std::find_if(others, lines.end(), [](const EpochLine& line) { return line.epoch.has_value(); });
  if (left_out != lines.end()) {
    run.notes.push_back(fmt::format("epoch lines with another prefix were left out, such as line {}, '{}'",
                                    left_out->number, (left_out->prefix + left_out->text).substr(0, 60)));
  }
  lines.erase(others, lines.end());
  for (const EpochLine& line : lines) {
    throw_if<DataError>(!line.epoch,
                        "{}, line {}: the epoch line cannot be read: expected the form 'Epoch: 3, Loss: 1.97, acc: "
                        "0.49, time cost: 1.83s', got '{}'; correct or remove the line",
                        where, line.number, printable(line.text));
    throw_if<DataError>(line.is_followed,
                        "{}, line {}: expected one epoch, got several in '{}'; give each its own line", where,
                        line.number, printable(line.text));
  }
  return lines;
}

}  // namespace

void read_text_log(const std::string& text, const std::string& where, RunRecord& run) {
  run.rounded = true;
  std::vector<EpochLine> lines;
  for_each_line(text, [&](const std::string& line, int number) {
    if (auto found = find_epoch_line(line, number)) {
      lines.push_back(std::move(*found));
    }
  });
  lines = lines_of_one_source(std::move(lines), where, run);
  std::vector<double*> without_unit;
  for (EpochLine& line : lines) {
    if (!line.has_unit) {
      without_unit.push_back(&*line.epoch->accuracy);
    }
    if (!line.test_has_unit && line.epoch->test_accuracy) {
      without_unit.push_back(&*line.epoch->test_accuracy);
    }
  }
  convert_percentages(without_unit, where, run);
  bool repeats = false;
  for (const EpochLine& line : lines) {
    repeats = repeats || (!run.epochs.empty() && run.epochs.back().epoch >= line.epoch->epoch);
    add_epoch(run, *line.epoch, fmt::format("{}, line {}", where, line.number));
  }
  if (repeats) {
    run.notes.emplace_back(
        "it has epochs more than once, as of a resumed run or of several ranks; the last ones count");
  }
  const std::string prefix = lines.empty() ? "" : lines.front().prefix;
  std::string before;
  for_each_line(text, [&](const std::string& line, int) {
    const std::string own = line.starts_with(prefix) ? line.substr(prefix.size()) : line;
    read_setting(own, before, run);
    before = own;
  });
}

}  // namespace stagecoach
