#include "datasets/image.h"

#include <vector>

#include "core/throw_if.h"
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

ImageSize read_size(Bytes bytes) {
  if (is_png(bytes)) {
    return read_png_size(bytes);
  }
  if (is_jpeg(bytes)) {
    return read_jpeg_size(bytes);
  }
  throw DataError("expected PNG or JPEG, got another format");
}

/// Decodes to [3, size.height, size.width]; `size` is the image's own.
void decode(Bytes bytes, ImageSize size, std::uint8_t* planes) {
  if (is_png(bytes)) {
    decode_png(bytes, size, planes);
  } else {
    decode_jpeg(bytes, size, planes);
  }
}

}  // namespace

ImageSize read_image_size(Bytes bytes, const std::string& name, std::int64_t max_pixels) {
  const ImageSize size = with_name(name, [&] { return read_size(bytes); });
  constexpr double kMega = 1e6;
  throw_if<DataError>(
      size.height * size.width > max_pixels,
      "image {} is too large: expected at most {:.6g} megapixels, got {} x {} pixels ({:.1f} megapixels); make it "
      "smaller, or allow more with --max-megapixels",
      name, static_cast<double>(max_pixels) / kMega, size.width, size.height,
      static_cast<double>(size.height) * static_cast<double>(size.width) / kMega);
  return size;
}

void decode_image(Bytes bytes, const std::string& name, std::uint8_t* target, ImageSize size, std::int64_t max_pixels) {
  const ImageSize stored = read_image_size(bytes, name, max_pixels);
  if (stored == size) {
    with_name(name, [&] { decode(bytes, stored, target); });
    return;
  }
  std::vector<std::uint8_t> planes(static_cast<std::size_t>(3 * stored.height * stored.width));
  with_name(name, [&] { decode(bytes, stored, planes.data()); });
  resize_image(planes.data(), stored, target, size);
}

}  // namespace stagecoach
