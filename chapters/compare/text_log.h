#pragma once
/// @file
/// Reads epochs from the printed output of a Stagecoach program, or of another framework that prints lines of the same
/// form.

#include <optional>
#include <string>
#include <string_view>

#include "chapters/compare/run_record.h"

namespace stagecoach {

/// Parses "Epoch: 3, Loss: 1.97, acc: 0.49, time cost: 1.83s", optionally followed by ", test acc: 0.48", ", 27310
/// img/s", ", idle 21.4% (ideal 20.0%)" or ", virtual". Returns nothing if the line has another form.
std::optional<EpochRecord> parse_epoch_line(std::string_view line);

/// Adds the epochs in `text` to `run`, and the settings if the text contains our table of them. Other lines, progress
/// bars and colours are ignored. Throws DataError that names `where` and the line if an epoch line is damaged.
void read_text_log(const std::string& text, const std::string& where, RunRecord& run);

}  // namespace stagecoach
