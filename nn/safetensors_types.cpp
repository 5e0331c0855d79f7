#include "nn/safetensors_types.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <utility>

#include "core/base/throw_if.h"

namespace stagecoach::safetensors {
namespace {

/// The upper half of a float's bits: widening is exact.
enum class BFloat16 : std::uint16_t {};

float converted(BFloat16 value) { return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16); }

template <class Integer>
std::int32_t converted(Integer value) {
  throw_if<DataError>(!std::in_range<std::int32_t>(value), "has the value {}: expected -2^31 to 2^31 - 1, as in int32",
                      value);
  return static_cast<std::int32_t>(value);
}

template <class From>
void convert(const char* from, std::size_t count, void* into) {
  auto* target = static_cast<decltype(converted(From{}))*>(into);
  for (std::size_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, from + i * sizeof(From), sizeof(From));  // which may not be aligned
    target[i] = converted(value);
  }
}

void copy_bools(const char* from, std::size_t count, void* into) {
  const auto other = std::find_if(from, from + count, [](char value) { return value != 0 && value != 1; });
  throw_if<DataError>(other != from + count, "has a boolean with the byte {}: expected 0 or 1",
                      other == from + count ? 0 : static_cast<unsigned char>(*other));
  std::memcpy(into, from, count);
}

/// All types of version 0.8 of the format.
constexpr ElementType kTypes[] = {
    {"BF16", 16, DType::float32, convert<BFloat16>},
    {"BOOL", 8, DType::uint8, copy_bools},
    {"F16", 16, DType::float16},
    {"F32", 32, DType::float32},
    {"F64", 64, DType::float64},
    {"I8", 8, DType::int32, convert<std::int8_t>},
    {"I16", 16, DType::int32, convert<std::int16_t>},
    {"I32", 32, DType::int32},
    {"I64", 64, DType::int32, convert<std::int64_t>},
    {"U8", 8, DType::uint8},
    {"U16", 16, DType::int32, convert<std::uint16_t>},
    {"U32", 32, DType::int32, convert<std::uint32_t>},
    {"U64", 64, DType::int32, convert<std::uint64_t>},
    {"C64", 64, std::nullopt},
    {"F4", 4, std::nullopt},
    {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt},
    {"F8_E4M3", 8, std::nullopt},
    {"F8_E4M3FNUZ", 8, std::nullopt},
    {"F8_E5M2", 8, std::nullopt},
    {"F8_E5M2FNUZ", 8, std::nullopt},
    {"F8_E8M0", 8, std::nullopt},
};

}  // namespace

const ElementType* find_type(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const ElementType& type) { return type.name == name; });
  return found == std::end(kTypes) ? nullptr : found;
}

const ElementType& type_of(DType dtype) {
  return *std::find_if(std::begin(kTypes), std::end(kTypes),
                       [&](const ElementType& type) { return type.dtype == dtype && type.convert == nullptr; });
}

std::string readable_types() {
  std::string names;
  for (const ElementType& type : kTypes) {
    names += type.dtype ? (names.empty() ? "" : ", ") + std::string(type.name) : "";
  }
  return names;
}

}  // namespace stagecoach::safetensors
