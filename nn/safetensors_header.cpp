#include "nn/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>

#include "core/base/error.h"
#include "core/base/parse_json.h"

namespace stagecoach::safetensors {
namespace {

using Json = nlohmann::json;

constexpr const char* kMetadataKey = "__metadata__";

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
  std::string extents;
  for (const std::int64_t extent : entry.shape) {
    extents += fmt::format("{}{}", extents.empty() ? "" : ",", extent);
  }
  return fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", quoted(entry.name), entry.type.name,
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

/// Returns the number of elements. Bounded, so that sizes do not overflow, not even those of shapes with an extent of
/// 0; no memory holds so many elements.
std::uint64_t count_elements(const std::string& name, const Json& extents) {
  constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 56;
  std::uint64_t elements = 1;
  bool is_empty = false;
  for (const Json& extent : extents) {
    const std::uint64_t count = to_count(name, extent);
    require(count <= kMaxElements / elements, fmt::format("has a shape for '{}' that exceeds any memory", name));
    elements *= std::max<std::uint64_t>(count, 1);
    is_empty = is_empty || count == 0;
  }
  return is_empty ? 0 : elements;
}

/// Throws unless these are the keys of a tensor's entry. Any other could change what the data mean.
void require_keys(const std::string& name, const Json& value) {
  require(value.is_object(), fmt::format("has no dtype, shape and data_offsets for '{}'", name));
  for (const auto& [key, ignored] : value.items()) {
    require(key == "dtype" || key == "shape" || key == "data_offsets",
            fmt::format("has an unknown key '{1}' for '{0}': expected dtype, shape and data_offsets; save the tensors "
                        "without it",
                        name, key));
  }
  require(value.contains("dtype") && value["dtype"].is_string(), fmt::format("has no dtype for '{}'", name));
}

Entry to_entry(const std::string& name, const Json& value) {
  require_keys(name, value);
  const auto& type_name = value["dtype"].get_ref<const std::string&>();
  const ElementType* type = find_type(type_name);
  const Json& shape = array_of(name, value, "shape");
  const std::uint64_t elements = count_elements(name, shape);
  const Json& offsets = array_of(name, value, "data_offsets");
  require(offsets.size() == 2,
          fmt::format("has a wrong number of offsets for '{}': expected 2, got {}", name, offsets.size()));
  Entry entry{.name = name, .begin = to_count(name, offsets[0]), .end = to_count(name, offsets[1])};
  require(entry.begin <= entry.end &&
              (type == nullptr || 8 * (entry.end - entry.begin) == elements * static_cast<std::uint64_t>(type->bits)),
          fmt::format("has wrong offsets for '{}': bytes {} to {} are not the size of {}{}", name, entry.begin,
                      entry.end, type_name, shape.dump()));
  if (type == nullptr || !type->dtype) {
    entry.problem = fmt::format("has the dtype {}: expected one of {}", type_name, readable_types());
  } else if (shape.size() > Shape::kMaxDims) {
    entry.problem = fmt::format("has too many dimensions: expected at most {}, got {}", Shape::kMaxDims, shape.size());
  } else {
    const auto extents = shape.get<std::vector<std::int64_t>>();
    entry.type = *type;
    entry.shape = {extents.data(), static_cast<int>(extents.size())};
  }
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
