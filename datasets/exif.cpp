#include "datasets/exif.h"

#include <cstddef>
#include <string_view>

namespace stagecoach {
namespace {

constexpr int kUpright = 1;
constexpr int kLast = 8;
constexpr int kFirstOnItsSide = 5;

/// Numbers of either byte order, at any position: 0 beyond the end.
class TiffReader {
 public:
  explicit TiffReader(std::span<const std::uint8_t> bytes)
      : bytes_(bytes), is_big_endian_(!bytes.empty() && bytes[0] == 'M') {}

  std::uint32_t number(std::size_t position, std::size_t width) const {
    if (position > bytes_.size() || bytes_.size() - position < width) {
      return 0;
    }
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < width; ++i) {
      value = value << 8U | bytes_[position + (is_big_endian_ ? i : width - 1 - i)];
    }
    return value;
  }

 private:
  std::span<const std::uint8_t> bytes_;
  bool is_big_endian_;
};

bool is_tiff(std::span<const std::uint8_t> bytes) {
  using namespace std::string_view_literals;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return text.starts_with("II*\0"sv) || text.starts_with("MM\0*"sv);
}

}  // namespace

int exif_orientation(std::span<const std::uint8_t> tiff) {
  constexpr std::size_t kEntry = 12;  // bytes: tag (2), type (2), count (4), value (4)
  constexpr std::uint32_t kOrientation = 0x0112;
  constexpr std::uint32_t kShort = 3;  // as the standard has it
  constexpr std::uint32_t kLong = 4;   // as some programs write it
  if (!is_tiff(tiff)) {
    return kUpright;
  }
  const TiffReader reader(tiff);
  const std::size_t directory = reader.number(4, 4);
  const std::size_t entries = reader.number(directory, 2);
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t entry = directory + 2 + i * kEntry;
    const std::uint32_t type = reader.number(entry + 2, 2);
    if (reader.number(entry, 2) == kOrientation && (type == kShort || type == kLong)) {
      const auto value = static_cast<int>(reader.number(entry + 8, type == kShort ? 2 : 4));
      return value >= kUpright && value <= kLast ? value : kUpright;
    }
  }
  return kUpright;
}

ImageSize upright_size(ImageSize stored, int orientation) {
  return orientation < kFirstOnItsSide ? stored : ImageSize{.height = stored.width, .width = stored.height};
}

void turn_upright(const std::uint8_t* source, ImageSize stored, int orientation, std::uint8_t* target) {
  const bool is_on_its_side = orientation >= kFirstOnItsSide;
  const bool from_last_row = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool from_last_column = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const ImageSize size = upright_size(stored, orientation);
  for (std::int64_t c = 0; c < 3; ++c, source += stored.height * stored.width) {
    for (std::int64_t y = 0; y < size.height; ++y) {
      for (std::int64_t x = 0; x < size.width; ++x) {
        const std::int64_t row = is_on_its_side ? x : y;
        const std::int64_t column = is_on_its_side ? y : x;
        *target++ = source[(from_last_row ? stored.height - 1 - row : row) * stored.width +
                           (from_last_column ? stored.width - 1 - column : column)];
      }
    }
  }
}

}  // namespace stagecoach
