// Reads text logs for read_run (run_record.h).

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <sstream>
#include <string_view>

#include "chapters/compare/run_record.h"
#include "core/error.h"
#include "core/parse.h"
#include "core/printable.h"

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

/// Reads one of the fields after the time. Unknown fields, which another framework may print, are ignored.
void read_field(std::string_view field, EpochRecord& epoch) {
  double value = 0;
  if (field == "virtual") {
    epoch.clock = "virtual";
  } else if (Scanner text(field); text.skip("test acc: ") && text.read(value)) {
    epoch.test_accuracy = value;
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

/// Parses "Epoch: 3, Loss: 1.97, acc: 0.49, time cost: 1.83s", optionally followed by ", test acc: 0.48", ", 27310
/// img/s", ", idle 21.4% (ideal 20.0%)" or ", virtual". Returns nothing if the line has another form.
std::optional<EpochRecord> parse_epoch_line(std::string_view line) {
  EpochRecord epoch;
  double accuracy = 0;
  Scanner text(line);
  if (!(text.skip("Epoch: ") && text.read(epoch.epoch) && text.skip(", Loss: ") && text.read(epoch.loss) &&
        text.skip(", acc: ") && text.read(accuracy) && text.skip(", time cost: ") && text.read(epoch.seconds) &&
        text.skip("s") && is_epoch_number(epoch.epoch) && epoch.seconds >= 0 && std::isfinite(epoch.seconds))) {
    return std::nullopt;
  }
  epoch.accuracy = accuracy;
  while (!text.at_end()) {
    read_field(text.field(), epoch);
  }
  return epoch;
}

}  // namespace

void read_text_log(const std::string& text, const std::string& where, RunRecord& run) {
  run.rounded = true;
  std::istringstream lines(text);
  std::string before;
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    // A progress bar returns to the start of the line, so the epoch line may follow a "\r".
    std::istringstream parts(line);
    for (std::string part; std::getline(parts, part, '\r');) {
      part = without_escapes(part);
      const auto epoch = parse_epoch_line(part);
      if (epoch) {
        add_epoch(run, *epoch);
      } else if (part.rfind("Epoch: ", 0) == 0 && part.find(", time cost: ") != std::string::npos) {
        throw DataError(
            fmt::format("{}, line {}: the epoch line cannot be read: expected the form 'Epoch: 3, Loss: 1.97, acc: "
                        "0.49, time cost: 1.83s', got '{}'; correct or remove the line",
                        where, number, printable(part.substr(0, 120))));
      }
      read_setting(part, before, run);
      before = part;
    }
  }
}

}  // namespace stagecoach
