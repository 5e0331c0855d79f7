#include "datasets/resize.h"

#include "core/base/error.h"

// The library is one header; here it is compiled, for this file only.
#define STB_IMAGE_RESIZE_STATIC
#define STB_IMAGE_RESIZE_IMPLEMENTATION
#include <stb_image_resize.h>

namespace stagecoach {

void resize_image(const std::uint8_t* source, ImageSize from, std::uint8_t* target, ImageSize to) {
  STAGECOACH_CHECK(from.height > 0 && from.width > 0 && to.height > 0 && to.width > 0,
                   "resize: expected positive sizes, got {} x {} to {} x {} pixels", from.height, from.width, to.height,
                   to.width);
  for (std::int64_t c = 0; c < 3; ++c) {
    const int done = stbir_resize_uint8_generic(
        source + c * from.height * from.width, static_cast<int>(from.width), static_cast<int>(from.height), 0,
        target + c * to.height * to.width, static_cast<int>(to.width), static_cast<int>(to.height), 0,
        /*num_channels=*/1, STBIR_ALPHA_CHANNEL_NONE, /*flags=*/0, STBIR_EDGE_CLAMP, STBIR_FILTER_TRIANGLE,
        STBIR_COLORSPACE_LINEAR, nullptr);
    STAGECOACH_CHECK(done == 1, "resize: out of memory while resizing {} x {} to {} x {} pixels", from.height,
                     from.width, to.height, to.width);
  }
}

}  // namespace stagecoach
