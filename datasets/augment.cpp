#include "datasets/augment.h"

#include <algorithm>
#include <cstring>

namespace stagecoach {
namespace {

/// Returns a shift that is uniform on -pad … pad, pad being an eighth of `extent` pixels.
std::int64_t shift(std::uint32_t random, std::int64_t extent) {
  const std::int64_t pad = extent / 8;
  const auto places = static_cast<std::uint64_t>(2 * pad + 1);
  return static_cast<std::int64_t>((random * places) >> 32) - pad;
}

}  // namespace

Crop crop_of(ImageSize size, const std::array<std::uint32_t, 4>& random) {
  return {shift(random[0], size.height), shift(random[1], size.width), random[2] >> 31 != 0};
}

void augment_image(const std::uint8_t* source, std::uint8_t* target, ImageSize size,
                   const std::array<std::uint32_t, 4>& random) {
  const auto [down, right, mirrored] = crop_of(size, random);
  // Columns first … last-1 of the source are visible; the others are outside the frame, and black takes their place.
  const std::int64_t first = std::min(std::max<std::int64_t>(0, right), size.width);
  const std::int64_t last = std::max(first, std::min(size.width, size.width + right));
  std::memset(target, 0, static_cast<std::size_t>(3 * size.height * size.width));
  for (std::int64_t c = 0; c < 3; ++c) {
    const std::int64_t plane = c * size.height * size.width;
    for (std::int64_t y = std::max<std::int64_t>(0, -down); y < size.height && y + down < size.height; ++y) {
      const std::uint8_t* from = source + plane + (y + down) * size.width;
      std::uint8_t* to = target + plane + y * size.width;
      if (mirrored) {
        std::reverse_copy(from + first, from + last, to + size.width - (last - right));
      } else {
        std::copy(from + first, from + last, to + first - right);
      }
    }
  }
}

}  // namespace stagecoach
