#include "nn/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>

#include "core/error.h"
#include "core/parse_json.h"

namespace stagecoach::safetensors {
namespace {

using Json = nlohmann::json;

constexpr const char* kMetadataKey = "__metadata__";

struct TypeName {
  const char* name;
  DType dtype;
};
constexpr TypeName kTypeNames[] = {{"F32", DType::float32},
                                   {"F64", DType::float64},
                                   {"I32", DType::int32},
                                   {"U8", DType::uint8},
                                   {"F16", DType::float16}};

[[noreturn]] void refuse(const std::string& what) { throw DataError("the header " + what); }

void require(bool condition, const std::string& what) {
  if (!condition) {
    refuse(what);
  }
}

/// Returns the string as JSON text. Passing text that is not UTF-8 is the caller's error.
std::string quoted(const std::string& text) {
  try {
    return Json(text).dump();
  } catch (const Json::exception&) {
    fail("safetensors: a name or a metadata value is not UTF-8");
  }
}

std::string entry_text(const Entry& entry) {
  const auto* type = std::find_if(std::begin(kTypeNames), std::end(kTypeNames),
                                  [&](const TypeName& each) { return each.dtype == entry.dtype; });
  std::string extents;
  for (const std::int64_t extent : entry.shape) {
    extents += fmt::format("{}{}", extents.empty() ? "" : ",", extent);
  }
  return fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", quoted(entry.name), type->name,
                     extents, entry.begin, entry.end);
}

std::uint64_t to_count(const std::string& name, const Json& value) {
  require(value.is_number_unsigned() &&
              value.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()),
          fmt::format("has a size or an offset for '{}' that is not a whole number from 0 to 2^63 - 1", name));
  return value.get<std::uint64_t>();
}

/// Returns the value of `key`, which must be an array.
const Json& array_of(const std::string& name, const Json& value, const char* key) {
  const auto found = value.find(key);
  require(found != value.end() && found->is_array(), fmt::format("has no list '{1}' for '{0}'", name, key));
  return *found;
}

DType to_dtype(const std::string& name, const Json& value) {
  const auto found = value.find("dtype");
  require(found != value.end() && found->is_string(), fmt::format("has no dtype for '{}'", name));
  for (const TypeName& type : kTypeNames) {
    if (*found == type.name) {
      return type.dtype;
    }
  }
  refuse(fmt::format("has an unknown dtype for '{}': expected F32, F64, F16, I32 or U8, got '{}'", name,
                     found->get_ref<const std::string&>()));
}

Shape to_shape(const std::string& name, const Json& value) {
  // Checked here, so that a bad file causes a DataError. No memory holds so many elements, and within the limit sizes
  // do not overflow, not even those of shapes with an extent of 0.
  constexpr std::int64_t kMaxElements = std::int64_t{1} << 56;
  std::vector<std::int64_t> extents;
  std::int64_t elements = 1;
  for (const Json& extent : array_of(name, value, "shape")) {
    extents.push_back(static_cast<std::int64_t>(to_count(name, extent)));
    require(extents.back() <= kMaxElements / elements,
            fmt::format("has a shape for '{}' that exceeds any memory", name));
    elements *= std::max<std::int64_t>(extents.back(), 1);
  }
  require(extents.size() <= Shape::kMaxDims,
          fmt::format("has too many dimensions for '{0}': expected at most {2}, got {1}", name, extents.size(),
                      Shape::kMaxDims));
  return {extents.data(), static_cast<int>(extents.size())};
}

Entry to_entry(const std::string& name, const Json& value) {
  require(value.is_object() && value.size() == 3, fmt::format("has no dtype, shape and data_offsets for '{}'", name));
  Entry entry;
  entry.name = name;
  entry.dtype = to_dtype(name, value);
  entry.shape = to_shape(name, value);
  const Json& offsets = array_of(name, value, "data_offsets");
  require(offsets.size() == 2,
          fmt::format("has a wrong number of offsets for '{}': expected 2, got {}", name, offsets.size()));
  entry.begin = to_count(name, offsets[0]);
  entry.end = to_count(name, offsets[1]);
  const std::uint64_t bytes = static_cast<std::uint64_t>(entry.shape.numel()) * size_of(entry.dtype);
  require(entry.begin <= entry.end && entry.end - entry.begin == bytes,
          fmt::format("has wrong offsets for '{}': bytes {} to {} are not the size of {}{}", name, entry.begin,
                      entry.end, name_of(entry.dtype), to_string(entry.shape)));
  return entry;
}

std::map<std::string, std::string> to_metadata(const Json& value) {
  require(value.is_object(), "has metadata that is not an object");
  std::map<std::string, std::string> metadata;
  for (const auto& [key, text] : value.items()) {
    require(text.is_string(), fmt::format("has metadata '{}' that is not a string", key));
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

/// Throws unless the entries cover the data without gaps or overlaps.
void require_contiguous(const std::vector<Entry>& entries, std::uint64_t data_bytes) {
  std::uint64_t expected = 0;
  for (const Entry& entry : entries) {
    require(entry.begin == expected, fmt::format("has a wrong offset for '{0}': expected byte {2} of the data, got {1}",
                                                 entry.name, entry.begin, expected));
    expected = entry.end;
  }
  require(expected == data_bytes,
          fmt::format("does not match the file: expected {} bytes of data, got {}", expected, data_bytes));
}

}  // namespace

std::string text_before_checksum() { return fmt::format(R"({{"{}":{{"{}":")", kMetadataKey, kChecksumKey); }
std::string text_after_checksum() { return fmt::format(R"(","{}":"{}")", kProducerKey, kProducer); }

std::string to_text(const Header& header) {
  std::string text = text_before_checksum() + "00000000" + text_after_checksum();
  for (const auto& [key, value] : header.metadata) {
    STAGECOACH_CHECK(key != kChecksumKey && key != kProducerKey,
                     "safetensors: the metadata key '{}' is reserved; choose another", key);
    text += fmt::format(",{}:{}", quoted(key), quoted(value));
  }
  text += "}";
  std::set<std::string> names{kMetadataKey};
  for (const Entry& entry : header.entries) {
    STAGECOACH_CHECK(names.insert(entry.name).second,
                     "safetensors: the tensor name '{}' is reserved or was given twice; choose another", entry.name);
    text += fmt::format(",{}", entry_text(entry));
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

Header from_text(std::string_view text, std::uint64_t data_bytes) {
  require(!text.empty() && text.front() == '{', "does not begin with '{'");
  const Json json = parse_json<Json>(text, "the header");
  Header header;
  for (const auto& [name, value] : json.items()) {
    if (name == kMetadataKey) {
      header.metadata = to_metadata(value);
    } else {
      header.entries.push_back(to_entry(name, value));
    }
  }
  std::sort(header.entries.begin(), header.entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  require_contiguous(header.entries, data_bytes);
  return header;
}

}  // namespace stagecoach::safetensors
