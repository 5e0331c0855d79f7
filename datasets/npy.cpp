#include "datasets/npy.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/parse.h"
#include "core/base/printable.h"
#include "core/base/throw_if.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kPreamble = 12;  // magic, two bytes of version, and at most four of the header's length
constexpr std::uint32_t kMaxHeader = 65536;
constexpr std::size_t kAlignment = 64;  // of the first element, as NumPy pads the header

using TypeName = std::pair<DType, std::string_view>;
constexpr std::array<TypeName, 4> kTypes = {
    {{DType::uint8, "|u1"}, {DType::int32, "<i4"}, {DType::float32, "<f4"}, {DType::float64, "<f8"}}};

DataError not_npy(const fs::path& path, const std::string& what) {
  return DataError(
      fmt::format("{}: expected an array that numpy.save wrote, got {}; write it again", path.string(), what));
}

/// Returns what follows `key` in a dictionary as Python prints it: {'descr': '<f4', 'shape': (10, 3), }.
std::string_view value_of(std::string_view header, std::string_view key, const fs::path& path) {
  const std::string quoted = fmt::format("'{}':", key);
  const std::size_t at = header.find(quoted);
  if (at == std::string_view::npos) {
    throw not_npy(path, fmt::format("a header without '{}'", key));
  }
  header.remove_prefix(at + quoted.size());
  header.remove_prefix(std::min(header.find_first_not_of(' '), header.size()));
  return header;
}

DType type_in(std::string_view header, const fs::path& path) {
  const std::string_view value = value_of(header, "descr", path);
  for (const auto& [type, name] : kTypes) {
    if (value.starts_with(fmt::format("'{}'", name))) {
      return type;
    }
  }
  throw DataError(
      fmt::format("{}: expected elements of uint8 (|u1), int32 (<i4), float32 (<f4) or float64 (<f8), got {}; convert "
                  "them, as with "
                  "array.astype('int32')",
                  path.string(), printable(std::string(value.substr(0, value.find(','))))));
}

/// Returns the extents in "(10, 3, 32, 32)".
std::vector<std::int64_t> extents_in(std::string_view header, const fs::path& path) {
  std::string_view value = value_of(header, "shape", path);
  const std::size_t end = value.find(')');
  if (!value.starts_with('(') || end == std::string_view::npos) {
    throw not_npy(path, "a header without a shape");
  }
  std::vector<std::int64_t> extents;
  for (std::string_view part : split_text(value.substr(1, end - 1), ',')) {
    part.remove_prefix(std::min(part.find_first_not_of(' '), part.size()));
    if (part.empty()) {
      continue;  // after the last comma, as in (10,)
    }
    const std::optional<std::int64_t> extent = number_from<std::int64_t>(part);
    if (!extent || *extent < 1) {
      throw not_npy(path, fmt::format("the extent '{}'", printable(std::string(part))));
    }
    extents.push_back(*extent);
  }
  if (extents.empty() || extents.size() > Shape::kMaxDims) {
    throw not_npy(path, fmt::format("{} dimensions (1 to {} can be read)", extents.size(), Shape::kMaxDims));
  }
  return extents;
}

/// Returns the header's text, and moves `file` to the first element.
std::string read_header(FileReader& file) {
  std::array<char, kPreamble> start = {};
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(start.at(i))); };
  if (file.size() < static_cast<std::int64_t>(kPreamble)) {
    throw not_npy(file.path(), "a file that is too short for it");
  }
  file.read(start.data(), kMagic.size() + 2);
  if (std::string_view(start.data(), kMagic.size()) != kMagic || byte(6) < 1 || byte(6) > 3) {
    throw not_npy(file.path(), "other bytes at its beginning");
  }
  const std::size_t length_bytes = byte(6) == 1 ? 2 : 4;
  file.read(start.data() + 8, length_bytes);
  const std::uint32_t length = byte(8) | byte(9) << 8U | (length_bytes == 4 ? byte(10) << 16U | byte(11) << 24U : 0U);
  if (length > kMaxHeader || file.size() < static_cast<std::int64_t>(8 + length_bytes + length)) {
    throw not_npy(file.path(), fmt::format("a header of {} bytes", length));
  }
  std::string header(length, '\0');
  file.read(header.data(), header.size());
  return header;
}

}  // namespace

NpyFile::NpyFile(const fs::path& path) : file_(path) {
  const std::string header = read_header(file_);
  begin_ = file_.position();
  row_.dtype = type_in(header, path);
  if (!value_of(header, "fortran_order", path).starts_with("False")) {
    throw not_npy(path, "its columns one after another (save numpy.ascontiguousarray(array))");
  }
  const std::vector<std::int64_t> extents = extents_in(header, path);
  try {
    const Shape all(extents.data(), static_cast<int>(extents.size()));
    size_ = extents.front();
    row_.shape = Shape(extents.data() + 1, all.dims() - 1);
    const auto expected = begin_ + all.numel() * static_cast<std::int64_t>(size_of(row_.dtype));
    throw_if<DataError>(file_.size() != expected,
                        "{} is {}: expected {} bytes for {}{}, got {}; copy or write it again", path.string(),
                        file_.size() < expected ? "truncated" : "too long", expected, name_of(row_.dtype),
                        to_string(all), file_.size());
  } catch (const DataError&) {
    throw;
  } catch (const Error& error) {  // an extent beyond all bounds
    throw not_npy(path, error.what());
  }
}

void NpyFile::read(std::int64_t first, Tensor& rows) const {
  STAGECOACH_CHECK(rows.dtype() == row_.dtype && rows.numel() % row_.shape.numel() == 0,
                   "{}: expected rows of {}{}, got {}", file_.path().string(), name_of(row_.dtype),
                   to_string(row_.shape), describe(rows));
  const auto bytes = row_.shape.numel() * static_cast<std::int64_t>(size_of(row_.dtype));
  file_.read_at(begin_ + first * bytes, rows.raw_mutable_data(), rows.bytes());
}

NpyWriter::NpyWriter(const fs::path& path, std::int64_t size, const SampleType& row)
    : file_(path), row_(row), left_(size * row.shape.numel()) {
  const auto type = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeName& t) { return t.first == row.dtype; });
  STAGECOACH_CHECK(type != kTypes.end(), "npy: expected elements of uint8, int32, float32 or float64, got {}",
                   name_of(row.dtype));
  std::string extents = fmt::format("{},", size);
  for (const std::int64_t extent : row.shape) {
    extents += fmt::format(" {},", extent);
  }
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", type->second, extents);
  constexpr std::size_t kBefore = kMagic.size() + 4;
  header.resize((kBefore + header.size() + kAlignment) / kAlignment * kAlignment - kBefore, ' ');
  header.back() = '\n';
  file_.write(kMagic);
  const std::array<char, 4> version_and_length = {1, 0, static_cast<char>(header.size() & 0xffU),
                                                  static_cast<char>(header.size() >> 8U)};
  file_.write(version_and_length.data(), version_and_length.size());
  file_.write(header);
}

void NpyWriter::write(const Tensor& rows) {
  STAGECOACH_CHECK(rows.dtype() == row_.dtype && rows.numel() % row_.shape.numel() == 0 && rows.numel() <= left_ &&
                       rows.device().type == DeviceType::cpu,
                   "npy: expected at most {} elements in rows of {}{} on a CPU, got {}", left_, name_of(row_.dtype),
                   to_string(row_.shape), describe(rows));
  file_.write(rows.raw_data(), rows.bytes());
  left_ -= rows.numel();
}

void NpyWriter::commit() {
  STAGECOACH_CHECK(left_ == 0, "npy: expected all rows before commit(), {} elements are missing", left_);
  file_.commit();
}

}  // namespace stagecoach
