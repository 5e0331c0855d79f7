#include "datasets/png.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string_view>

#include "core/base/error.h"
#include "datasets/exif.h"

namespace {

// stb may not allocate more at once than the image and its file can need.
thread_local std::size_t largest_allocation = 0;
thread_local bool was_refused = false;

bool is_allowed(std::size_t bytes) {
  was_refused = was_refused || bytes > largest_allocation;
  return bytes <= largest_allocation;
}
void* limited_malloc(std::size_t bytes) { return is_allowed(bytes) ? std::malloc(bytes) : nullptr; }
void* limited_realloc(void* old, std::size_t bytes) { return is_allowed(bytes) ? std::realloc(old, bytes) : nullptr; }

}  // namespace

// The library's code is in its header; here it is compiled, for this file only.
#define STBI_ONLY_PNG
#define STBI_NO_STDIO
#define STBI_FAILURE_USERMSG  // readable error messages
#define STBI_MALLOC(bytes) limited_malloc(bytes)
#define STBI_REALLOC(old, bytes) limited_realloc(old, bytes)
#define STBI_FREE(old) std::free(old)
#define STB_IMAGE_STATIC
#define STB_IMAGE_IMPLEMENTATION
#include <stb_image.h>

namespace stagecoach {
namespace {

using Bytes = std::span<const std::uint8_t>;

constexpr std::string_view kSignature = "\x89PNG\r\n\x1a\n";

std::string_view text_of(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

[[noreturn]] void refuse(const std::string& why) { throw DataError(why); }

std::uint32_t read_number(Bytes bytes) {
  return std::uint32_t{bytes[0]} << 24U | std::uint32_t{bytes[1]} << 16U | std::uint32_t{bytes[2]} << 8U | bytes[3];
}

/// In the file: [length, type, data, checksum], each of 4 bytes except for the data.
struct Chunk {
  std::string_view type;
  Bytes data;
};

constexpr std::size_t kAroundData = 12;

/// Returns the chunk at the beginning of `bytes` after verifying its checksum.
Chunk read_chunk(Bytes bytes) {
  if (bytes.size() < kAroundData || read_number(bytes) > bytes.size() - kAroundData) {
    refuse("the file is truncated");
  }
  const std::size_t length = read_number(bytes);
  const Bytes checked = bytes.subspan(4, 4 + length);  // type and data
  const std::uint32_t checksum = read_number(bytes.subspan(8 + length));
  if (crc32_z(0, checked.data(), checked.size()) != checksum) {
    refuse("the file is damaged: a checksum does not match");
  }
  return {text_of(checked.first(4)), checked.subspan(4)};
}

ImageSize size_in(const Chunk& header) {
  if (header.type != "IHDR" || header.data.size() != 13) {
    refuse("expected a PNG header (IHDR) first");
  }
  const ImageSize size{.height = read_number(header.data.subspan(4)), .width = read_number(header.data)};
  constexpr std::int64_t kMax = 0x7fffffff;  // the format's limit
  if (size.height > kMax || size.width > kMax) {
    refuse("expected fewer than 2^31 rows and columns");
  }
  return size;
}

struct FreePixels {
  void operator()(stbi_uc* pixels) const { stbi_image_free(pixels); }
};

/// Returns the most bytes that stb may allocate at once: the pixels with four channels of 16 bits, with or without the
/// rows' filter bytes, doubled because buffers grow by doubling; or twice the file's size.
std::size_t allocation_limit(Bytes bytes, ImageSize size) {
  const auto pixels = static_cast<std::size_t>(8 * size.height * size.width + size.height);
  return 2 * std::max(pixels, bytes.size()) + 65536;
}

}  // namespace

bool is_png(Bytes bytes) { return text_of(bytes).starts_with(kSignature); }

ImageHeader read_png_header(Bytes bytes) {
  if (bytes.size() > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    refuse("expected at most 2 GiB, got a larger file");
  }
  Bytes rest = bytes.subspan(kSignature.size());
  const Chunk first = read_chunk(rest);
  ImageHeader header{.size = size_in(first)};
  constexpr std::uint8_t kAlpha = 4;  // a bit of the colour type
  header.has_alpha = (first.data[9] & kAlpha) != 0;
  bool has_data = false;
  for (Chunk chunk; chunk.type != "IEND"; rest = rest.subspan(kAroundData + chunk.data.size())) {
    chunk = read_chunk(rest);
    if (chunk.type == "IDAT" && !has_data && chunk.data.empty()) {
      refuse("the first data chunk is empty");
    }
    has_data = has_data || chunk.type == "IDAT";
    header.has_alpha = header.has_alpha || chunk.type == "tRNS";
    if (chunk.type == "eXIf") {
      header.orientation = exif_orientation(chunk.data);
    }
  }
  return header;
}

namespace {

/// Returns `value` of opacity `alpha` on a ground of value `ground`, rounded.
std::uint8_t laid_on(std::uint8_t ground, std::uint8_t value, std::uint8_t alpha) {
  return static_cast<std::uint8_t>((value * alpha + ground * (255 - alpha) + 127) / 255);
}

}  // namespace

void decode_png(Bytes bytes, const ImageHeader& header, BackgroundColor background, std::uint8_t* planes) {
  const ImageSize size = header.size;
  const int channels = header.has_alpha ? STBI_rgb_alpha : STBI_rgb;
  largest_allocation = allocation_limit(bytes, size);
  was_refused = false;
  int width = 0;
  int height = 0;
  int stored_channels = 0;
  const std::unique_ptr<stbi_uc, FreePixels> pixels(
      stbi_load_from_memory(bytes.data(), static_cast<int>(bytes.size()), &width, &height, &stored_channels, channels));
  if (pixels == nullptr) {
    refuse(was_refused ? "the decompressed data is larger than the image" : stbi_failure_reason());
  }
  STAGECOACH_CHECK(width == size.width && height == size.height, "decode_png: expected {2} x {3} pixels, got {0} x {1}",
                   height, width, size.height, size.width);
  const std::int64_t count = size.height * size.width;
  const std::array<std::uint8_t, 3> ground{background.red, background.green, background.blue};
  const stbi_uc* pixel = pixels.get();
  for (std::int64_t i = 0; i < count; ++i, pixel += channels) {
    for (std::size_t c = 0; c < 3; ++c) {
      planes[static_cast<std::int64_t>(c) * count + i] =
          header.has_alpha ? laid_on(ground[c], pixel[c], pixel[3]) : pixel[c];
    }
  }
}

}  // namespace stagecoach
