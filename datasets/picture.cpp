#include "datasets/picture.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <string_view>
#include <vector>

#include "core/error.h"

// The library's code lies in its header; here it is compiled, for this file only.
#define STBI_ONLY_JPEG
#define STBI_ONLY_PNG
#define STBI_NO_STDIO
#define STBI_FAILURE_USERMSG  // reasons in words
#define STB_IMAGE_STATIC
#define STB_IMAGE_IMPLEMENTATION
#include <stb_image.h>

namespace stagecoach {
namespace {

struct FreePixels {
  void operator()(stbi_uc* pixels) const { stbi_image_free(pixels); }
};

/// Why `bytes`, which stb decoded to `pixels`, are no good; nullptr if they are.
const char* find_fault(std::span<const std::uint8_t> bytes, const stbi_uc* pixels) {
  if (bytes.size() > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    return "the file is larger than 2 GB";
  }
  if (pixels == nullptr) {
    return stbi_failure_reason();
  }
  // Some versions of stb fill up a JPEG that was cut off with grey; we would rather know. The marker that ends a
  // JPEG cannot occur within its compressed pixels.
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const bool cut_off = text.starts_with("\xff\xd8") && text.rfind("\xff\xd9") == std::string_view::npos;
  return cut_off ? "the file ends too early" : nullptr;
}

/// [height, width, 3] to [3, height, width].
void split_planes(const std::uint8_t* pixels, std::uint8_t* planes, PictureSize size) {
  const std::int64_t count = size.height * size.width;
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t c = 0; c < 3; ++c) {
      planes[c * count + i] = pixels[3 * i + c];
    }
  }
}

}  // namespace

void decode_picture(std::span<const std::uint8_t> bytes, const std::string& name, std::uint8_t* target,
                    PictureSize size) {
  constexpr std::size_t kMost = std::numeric_limits<int>::max();
  int width = 0;
  int height = 0;
  int stored_channels = 0;
  const std::unique_ptr<stbi_uc, FreePixels> pixels(stbi_load_from_memory(
      bytes.data(), static_cast<int>(std::min(bytes.size(), kMost)), &width, &height, &stored_channels, STBI_rgb));
  if (const char* fault = find_fault(bytes, pixels.get())) {
    throw DataError(fmt::format("picture {} cannot be decoded: {}; replace or delete it", name, fault));
  }
  const PictureSize stored{height, width};
  if (stored == size) {
    split_planes(pixels.get(), target, size);
    return;
  }
  std::vector<std::uint8_t> planes(static_cast<std::size_t>(3 * stored.height * stored.width));
  split_planes(pixels.get(), planes.data(), stored);
  resize_picture(planes.data(), stored, target, size);
}

}  // namespace stagecoach
