#include "datasets/image.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/throw_if.h"
#include "datasets/exif.h"
#include "datasets/jpeg.h"
#include "datasets/png.h"

namespace stagecoach {
namespace {

using Bytes = std::span<const std::uint8_t>;

/// Runs `action`. If it throws DataError, adds the file's name and what to do.
template <class Action>
auto with_name(const std::string& name, const Action& action) {
  try {
    return action();
  } catch (const DataError& error) {
    throw DataError(fmt::format("image {} cannot be decoded: {}; replace or delete it", name, error.what()));
  }
}

ImageHeader read_header(Bytes bytes) {
  if (is_png(bytes)) {
    return read_png_header(bytes);
  }
  if (is_jpeg(bytes)) {
    return read_jpeg_header(bytes);
  }
  throw DataError("expected PNG or JPEG, got another format");
}

ImageHeader read_header(Bytes bytes, const std::string& name, std::int64_t max_pixels) {
  const ImageHeader header = with_name(name, [&] { return read_header(bytes); });
  const ImageSize size = header.size;
  constexpr double kMega = 1e6;
  throw_if<DataError>(
      size.height * size.width > max_pixels,
      "image {} is too large: expected at most {:.6g} megapixels, got {} x {} pixels ({:.1f} megapixels); make it "
      "smaller, or allow more with `max_pixels`",
      name, static_cast<double>(max_pixels) / kMega, size.width, size.height,
      static_cast<double>(size.height) * static_cast<double>(size.width) / kMega);
  return header;
}

std::size_t bytes_of(ImageSize size) { return static_cast<std::size_t>(3 * size.height * size.width); }

/// Decodes the stored pixels to [3, height, width].
void decode(Bytes bytes, const ImageHeader& header, BackgroundColor background, std::uint8_t* planes) {
  if (is_png(bytes)) {
    decode_png(bytes, header, background, planes);
  } else {
    decode_jpeg(bytes, header.size, planes);
  }
}

}  // namespace

ImageSize read_image_size(Bytes bytes, const std::string& name, std::int64_t max_pixels) {
  return read_header(bytes, name, max_pixels).size;
}

void decode_image(Bytes bytes, const std::string& name, std::uint8_t* target, ImageSize size, std::int64_t max_pixels,
                  BackgroundColor background) {
  const ImageHeader header = read_header(bytes, name, max_pixels);
  const bool is_upright = header.orientation == 1;
  if (header.size == size && is_upright) {
    with_name(name, [&] { decode(bytes, header, background, target); });
    return;
  }
  std::vector<std::uint8_t> planes(bytes_of(header.size));
  with_name(name, [&] { decode(bytes, header, background, planes.data()); });
  if (!is_upright) {
    std::vector<std::uint8_t> turned(planes.size());
    turn_upright(planes.data(), header.size, header.orientation, turned.data());
    planes = std::move(turned);
  }
  const ImageSize upright = upright_size(header.size, header.orientation);
  if (upright == size) {
    std::copy(planes.begin(), planes.end(), target);
  } else {
    resize_image(planes.data(), upright, target, size);
  }
}

}  // namespace stagecoach
