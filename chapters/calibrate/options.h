#pragma once
/// @file
/// The flags of the program calibrate.

#include <string>

namespace stagecoach {

inline constexpr const char* kCalibrate = "calibrate";

struct CalibrateOptions {
  std::string out;
  std::string name = "mine";
  std::string device = "cpu";
  bool tf32 = false;
  bool overwrite = false;
  bool calls = false;
  std::string times;
  std::string like;
  std::string without;
};

/// Parses the command line. Throws as parse_command_line does, and UsageError if the file to write exists and may not
/// be replaced.
CalibrateOptions calibrate_options(int argc, const char* const* argv);

}  // namespace stagecoach
