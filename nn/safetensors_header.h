#pragma once
/// @file
/// The JSON header of a safetensors file: to text and, with every rule of the format checked, back.
/// Format: https://github.com/huggingface/safetensors (section "Format"), read in its version 0.5.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/shape.h"

namespace stagecoach::safetensors {

/// Where one tensor is: bytes begin … end-1, counted from the end of the header.
struct Entry {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct Header {
  std::vector<Entry> entries;  ///< in the order of their data
  std::map<std::string, std::string> metadata;
};

/// The limit that the format sets.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

/// Metadata that marks our files. Both keys are in each of them, so that one damaged key still shows.
inline constexpr const char* kChecksumKey = "stagecoach_crc32";
inline constexpr const char* kProducerKey = "stagecoach_producer";
inline constexpr const char* kProducer = "stagecoach";

/// Our headers begin so, which fixes the place of the checksum: eight lowercase hexadecimal digits between the two.
std::string text_before_checksum();
std::string text_after_checksum();

/// The header's text with the checksum "00000000", padded with spaces so that 8 + its length is a multiple of 8.
/// Throws Error for names or metadata that are given twice, reserved, or not UTF-8.
std::string to_text(const Header& header);

/// Reads a header's text. `data_bytes` are what follows it in the file. Throws DataError that says what is wrong.
Header from_text(std::string_view text, std::uint64_t data_bytes);

}  // namespace stagecoach::safetensors
