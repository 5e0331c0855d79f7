#include "image_writer.h"

#include <stdexcept>

#define STB_IMAGE_WRITE_STATIC
#define STB_IMAGE_WRITE_IMPLEMENTATION
#include <stb_image_write.h>

namespace stagecoach {

Pixels plain_pixels(int height, int width, const std::vector<std::uint8_t>& channels) {
  Pixels pixels{height, width, static_cast<int>(channels.size()), {}};
  for (int i = 0; i < height * width; ++i) {
    pixels.bytes.insert(pixels.bytes.end(), channels.begin(), channels.end());
  }
  return pixels;
}

void write_image(const std::filesystem::path& path, const Pixels& pixels) {
  std::filesystem::create_directories(path.parent_path());
  const auto [height, width, channels, bytes] = pixels;
  const bool png = path.extension() == ".png" || path.extension() == ".PNG";
  const int done = png ? stbi_write_png(path.c_str(), width, height, channels, bytes.data(), width * channels)
                       : stbi_write_jpg(path.c_str(), width, height, channels, bytes.data(), 95);
  if (done == 0) {
    throw std::runtime_error("cannot write " + path.string());
  }
}

}  // namespace stagecoach
