#pragma once
/// @file
/// What each setting may be: one table for the flags and for config.json.

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace stagecoach {

struct Chapter;

/// Whole numbers from `least` to `most`.
struct WholeNumbers {
  std::uint64_t least;
  std::uint64_t most;
};

inline constexpr std::int64_t kMaxBatchSize = 1 << 20;
inline constexpr WholeNumbers kAnySeed{0, std::numeric_limits<std::uint64_t>::max()};

/// Bytes, as a whole number that may have a unit: 65536, 64KiB.
struct ByteCounts {
  std::uint64_t least;
  std::uint64_t most;
};

/// Decimal numbers from `least` to `most`, and perhaps 0 below them.
struct Numbers {
  double least;
  double most;
  bool or_zero = false;
};

/// One word of a list.
using Words = std::vector<std::string>;

/// Text with a reader of its own, which throws UsageError for what it cannot read.
struct TextOf {
  std::function<void(const std::string&)> read;
};

using Allowed = std::variant<WholeNumbers, ByteCounts, Numbers, Words, TextOf>;

/// "" if `text` is one of what is `allowed`, and then `text` becomes its plain form (64KiB: 65536; 010: 10). Otherwise
/// what was expected: "expected a whole number from 1 to 64, got '65'".
std::string check(const Allowed& allowed, std::string& text);

/// What the settings of one chapter may be, each named as its flag without dashes.
class Bounds {
 public:
  explicit Bounds(const Chapter& chapter);

  /// "1 to 64" or "{adam,sgd}", for --help; "" for a text and for a setting without bounds.
  std::string summary(const std::string& setting) const;

  /// stagecoach::check of a value of `setting`; "" for a setting without bounds.
  std::string check(const std::string& setting, std::string& text) const;

 private:
  std::map<std::string, Allowed> table_;
};

}  // namespace stagecoach
