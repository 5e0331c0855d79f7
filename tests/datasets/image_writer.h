#pragma once
/// @file
/// Writes images as files, for the tests that read them.

#include <cstdint>
#include <filesystem>
#include <vector>

namespace stagecoach {

/// [height, width, channels], channel by channel within a pixel: 1 grey, 2 grey and alpha, 3 RGB, 4 RGB and alpha.
struct Pixels {
  int height = 0;
  int width = 0;
  int channels = 0;
  std::vector<std::uint8_t> bytes;
};

/// An image in which every pixel has the same channels.
Pixels plain_pixels(int height, int width, const std::vector<std::uint8_t>& channels);

/// As PNG, or as JPEG of high quality if the name ends in .jpg, .jpeg or .JPG. Makes the folders.
void write_image(const std::filesystem::path& path, const Pixels& pixels);

}  // namespace stagecoach
