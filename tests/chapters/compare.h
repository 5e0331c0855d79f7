#pragma once
/// @file
/// Runs `compare` as its users do, on records that a test wrote by hand.

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "tests/chapters/program.h"

namespace stagecoach::test {

using Texts = std::vector<std::string>;

class CompareTest : public ProgramTest {
 protected:
  /// Runs it with --wide, so that all columns are there.
  Outcome compare(Texts arguments);
  void write(const std::string& name, const std::string& text);
  /// Writes the --out folder of a run on 1,000 images whose epochs took so many seconds. `settings` and `figures`,
  /// objects, are added to its config and to each of its epochs.
  void write_run(const std::string& name, const std::vector<double>& seconds, const nlohmann::json& settings = {},
                 const nlohmann::json& figures = {});

  /// Expects that these cannot be compared: exit code 2, the table with "-", and one line of reason with all `texts`.
  void expect_refusal(const std::string& a, const std::string& b, const Texts& texts);
  /// Expects this exit code, one line on standard error with all of `texts` in it, and no table.
  void expect_error(const Texts& arguments, int exit_code, const Texts& texts);
  static void expect_texts(const std::string& where, const Texts& texts);
  /// A cell of the plain table.
  static std::string cell(const Outcome& outcome, const std::string& run, const std::string& column);
};

}  // namespace stagecoach::test
