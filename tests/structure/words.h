#pragma once
/// @file
/// A rule of language: the field's own terms, in plain English.

#include <filesystem>
#include <string>
#include <vector>

namespace stagecoach {

/// Finds words that this project once used where the field has another, in names, comments and texts of all sources,
/// tests, scripts and pages. Returns one line per find, with what to write instead; none when all is well.
std::vector<std::string> home_made_words(const std::filesystem::path& root);

}  // namespace stagecoach
