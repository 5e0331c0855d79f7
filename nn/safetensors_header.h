#pragma once
/// @file
/// The JSON header of a safetensors file: conversion to text, and strict parsing that checks every rule of the format.
/// Format: https://github.com/huggingface/safetensors (section "Format"), version 0.8.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/shape.h"
#include "nn/safetensors_types.h"

namespace stagecoach::safetensors {

/// One tensor and its data: bytes begin … end-1, counted from the end of the header.
struct Entry {
  std::string name;
  ElementType type = {};
  Shape shape = {};
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::string problem = {};  ///< why no tensor can hold it; if there is one, `type` and `shape` have no meaning
};

struct Header {
  std::vector<Entry> entries;  ///< in the order of their data
  std::map<std::string, std::string> metadata;
};

/// The limit set by the format.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

/// Metadata that marks files written here. Each file has both keys, so it can be recognised even if one is damaged.
inline constexpr const char* kChecksumKey = "stagecoach_crc32";
inline constexpr const char* kProducerKey = "stagecoach_producer";
inline constexpr const char* kProducer = "stagecoach";

/// The beginning of the headers written here. It fixes the position of the checksum: eight lowercase hexadecimal digits
/// between the two texts.
std::string text_before_checksum();
std::string text_after_checksum();

/// Returns the header's text with the checksum "00000000", padded with spaces so that 8 + its length is a multiple of
/// 8. Throws Error for names or metadata that are duplicate, reserved, or not UTF-8.
std::string to_text(const Header& header);

/// Parses a header's text. `data_bytes` is the size of the data after the header. Throws DataError that says which rule
/// of the format it breaks. Tensors that only Stagecoach cannot hold have a `problem` instead.
Header from_text(std::string_view text, std::uint64_t data_bytes);

}  // namespace stagecoach::safetensors
