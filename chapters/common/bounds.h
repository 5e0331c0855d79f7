#pragma once
/// @file
/// Values within bounds, out of texts that are such a value and nothing else. Each function throws UsageError with what
/// was expected: "expected a whole number from 1 to 64, got '65'".

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace stagecoach {

inline constexpr std::int64_t kMaxBatchSize = 1 << 20;

std::uint64_t whole_number(const std::string& text, std::uint64_t least, std::uint64_t most);
/// A whole number that may have a unit: 65536, 64KiB.
std::uint64_t byte_count(const std::string& text, std::uint64_t least, std::uint64_t most);
/// With `or_zero` 0 is good too, although it is less than `least`.
double real_number(const std::string& text, double least, double most, bool or_zero = false);
/// Where the text is among `words`.
std::size_t index_in(const std::vector<std::string>& words, const std::string& text);

}  // namespace stagecoach
