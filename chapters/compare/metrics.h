#pragma once
/// @file
/// Reads metrics.jsonl and config.json of a run folder.

#include <map>
#include <string>

#include "chapters/compare/run_record.h"

namespace stagecoach {

/// Adds the epochs in `text`, a metrics.jsonl, to `run`. Other events and unknown keys are ignored. Throws DataError
/// that names `where` and the line if a line is damaged.
void read_metrics(const std::string& text, const std::string& where, RunRecord& run);

/// Returns the settings in `text`, a config.json. Throws DataError that names `where` if the text is damaged.
std::map<std::string, std::string> read_config(const std::string& text, const std::string& where);

}  // namespace stagecoach
