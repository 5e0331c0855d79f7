#pragma once
/// @file
/// The flags of the program calibrate.

#include <optional>
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

/// Parses the command line. Returns nothing after printing --help. Throws UsageError for flags that are wrong, and if
/// the file to write exists and may not be replaced.
std::optional<CalibrateOptions> calibrate_options(int argc, const char* const* argv);

}  // namespace stagecoach
