#pragma once
/// @file
/// Parsing of values with bounds. The text must be such a value and nothing else; otherwise each function throws
/// UsageError, such as "expected a whole number from 1 to 64, got '65'".

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace stagecoach {

inline constexpr std::int64_t kMaxBatchSize = 1 << 20;

std::uint64_t whole_number(const std::string& text, std::uint64_t least, std::uint64_t most);
/// Parses a number of bytes, which may have a unit: 65536, 64KiB.
std::uint64_t byte_count(const std::string& text, std::uint64_t least, std::uint64_t most);
/// With `or_zero`, 0 is valid too, even if it is less than `least`.
double real_number(const std::string& text, double least, double most, bool or_zero = false);
/// Returns the index of `text` in `words`.
std::size_t index_in(const std::vector<std::string>& words, const std::string& text);

}  // namespace stagecoach
