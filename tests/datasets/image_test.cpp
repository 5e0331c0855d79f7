#include "datasets/image.h"

#include <zlib.h>

#include "datasets/exif.h"
#include "datasets/files.h"
#include "image_writer.h"
#include "support.h"

namespace stagecoach {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes decode(const std::filesystem::path& path, ImageSize size, BackgroundColor background = {}) {
  Bytes planes(static_cast<std::size_t>(3 * size.height * size.width));
  decode_image(read_file(path), path.string(), planes.data(), size, kMaxPixels, background);
  return planes;
}

/// A PNG file of 8 bits per channel, chunk by chunk.
struct Png {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  char colour_type = 0;
  std::vector<std::pair<std::string, std::string>> chunks = {};  ///< before the pixels
  Bytes rows = {};                                               ///< each after a filter byte
};

std::string big_endian(std::uint32_t number) {
  return {static_cast<char>(number >> 24U), static_cast<char>(number >> 16U), static_cast<char>(number >> 8U),
          static_cast<char>(number)};
}

std::string chunk_of(const std::string& type, const std::string& data) {
  const std::string checked = type + data;
  const uLong checksum = crc32_z(0, reinterpret_cast<const Bytef*>(checked.data()), checked.size());
  return big_endian(static_cast<std::uint32_t>(data.size())) + checked +
         big_endian(static_cast<std::uint32_t>(checksum));
}

std::string png_of(const Png& png) {
  std::string file = "\x89PNG\r\n\x1a\n";
  file += chunk_of("IHDR",
                   big_endian(png.width) + big_endian(png.height) + '\x08' + png.colour_type + std::string(3, '\0'));
  for (const auto& [type, data] : png.chunks) {
    file += chunk_of(type, data);
  }
  uLongf size = compressBound(png.rows.size());
  std::string packed(size, '\0');
  compress(reinterpret_cast<Bytef*>(packed.data()), &size, png.rows.data(), png.rows.size());
  return file + chunk_of("IDAT", packed.substr(0, size)) + chunk_of("IEND", "");
}

TEST(Image, PngPixelsAreExactAndBecomePlanes) {
  const TemporaryFolder folder;
  write_image(folder / "rgb.png", {1, 2, 3, {1, 2, 3, 4, 5, 6}});
  EXPECT_EQ(decode(folder / "rgb.png", {1, 2}), (Bytes{1, 4, 2, 5, 3, 6}));
  write_image(folder / "grey.png", {1, 2, 1, {7, 9}});
  EXPECT_EQ(decode(folder / "grey.png", {1, 2}), (Bytes{7, 9, 7, 9, 7, 9}));
}

TEST(Image, TransparentPixelsAreLaidOnTheBackground) {
  const TemporaryFolder folder;
  write_image(folder / "alpha.png", {1, 2, 4, {1, 2, 3, 0, 4, 5, 6, 128}});
  EXPECT_EQ(decode(folder / "alpha.png", {1, 2}), (Bytes{255, 129, 255, 130, 255, 130}));
  EXPECT_EQ(decode(folder / "alpha.png", {1, 2}, {0, 100, 200}), (Bytes{0, 2, 100, 52, 200, 103}));
  write_image(folder / "grey_alpha.png", {1, 2, 2, {7, 0, 9, 255}});
  EXPECT_EQ(decode(folder / "grey_alpha.png", {1, 2}, {10, 20, 30}), (Bytes{10, 9, 20, 9, 30, 9}));
}

TEST(Image, AColourOfAPaletteMayBeTransparent) {
  const TemporaryFolder folder;
  // Two pixels of a palette of two colours, the first of which is transparent: what other programs write.
  write_text_file(folder / "palette.png", png_of({.width = 2,
                                                  .height = 1,
                                                  .colour_type = 3,
                                                  .chunks = {{"PLTE", "\1\2\3\4\5\6"}, {"tRNS", std::string(1, '\0')}},
                                                  .rows = {0, 0, 1}}));
  EXPECT_EQ(decode(folder / "palette.png", {1, 2}, {9, 9, 9}), (Bytes{9, 4, 9, 5, 9, 6}));
}

/// Metadata with the tag Orientation in either order of bytes, as a number of 16 bits (type 3) or 32 bits (type 4).
std::string tiff(int orientation, bool is_big_endian, int type = 3) {
  std::string bytes = is_big_endian ? "MM" : "II";
  const auto add = [&](std::uint32_t number, int width) {
    for (int i = 0; i < width; ++i) {
      bytes += static_cast<char>(number >> 8 * (is_big_endian ? width - 1 - i : i));
    }
  };
  add(42, 2);
  add(8, 4);       // where the directory is
  add(1, 2);       // its entries
  add(0x0112, 2);  // Orientation
  add(static_cast<std::uint32_t>(type), 2);
  add(1, 4);
  add(static_cast<std::uint32_t>(orientation), type == 3 ? 2 : 4);
  add(0, type == 3 ? 2 : 0);
  return bytes;
}

TEST(Image, WhatACameraStoredOnItsSideIsTurned) {
  // "abcdef" in two rows of three, as it is seen when the stored pixels have each orientation.
  const std::vector<std::pair<ImageSize, std::string>> seen = {
      {{2, 3}, "abcdef"}, {{2, 3}, "cbafed"}, {{2, 3}, "fedcba"}, {{2, 3}, "defabc"},
      {{3, 2}, "adbecf"}, {{3, 2}, "daebfc"}, {{3, 2}, "fcebda"}, {{3, 2}, "cfbead"}};
  const TemporaryFolder folder;
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const auto& [size, pixels] = seen[static_cast<std::size_t>(orientation - 1)];
    for (const bool is_big_endian : {false, true}) {
      const std::string metadata = tiff(orientation, is_big_endian);
      write_text_file(folder / "it.png", png_of({.width = 3,
                                                 .height = 2,
                                                 .colour_type = 0,
                                                 .chunks = {{"eXIf", metadata}},
                                                 .rows = {0, 'a', 'b', 'c', 0, 'd', 'e', 'f'}}));
      const Bytes planes = decode(folder / "it.png", size);
      EXPECT_EQ(std::string(planes.begin(), planes.begin() + 6), pixels) << orientation;
    }
  }
}

int orientation_in(const std::string& text) {
  return exif_orientation({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

TEST(Image, TheOrientationMayHave32Bits) {
  for (const bool is_big_endian : {false, true}) {
    for (int orientation = 1; orientation <= 8; ++orientation) {
      EXPECT_EQ(orientation_in(tiff(orientation, is_big_endian, 4)), orientation);
    }
    EXPECT_EQ(orientation_in(tiff(0x10006, is_big_endian, 4)), 1);
    EXPECT_EQ(orientation_in(tiff(6, is_big_endian, 2)), 1);
  }
}

TEST(Image, MetadataThatIsDamagedIsIgnored) {
  const std::string metadata = tiff(6, false);
  ASSERT_EQ(orientation_in(metadata), 6);
  for (std::size_t length = 0; length + 4 <= metadata.size(); ++length) {
    EXPECT_EQ(orientation_in(metadata.substr(0, length)), 1) << length;
  }
  EXPECT_EQ(orientation_in(tiff(9, false)), 1);
  std::string beyond = metadata;
  beyond[7] = '\xff';  // the directory is 4 GB further on
  EXPECT_EQ(orientation_in(beyond), 1);
}

TEST(Image, AJpegIsTurnedTooAndShrunkAfterwards) {
  const TemporaryFolder folder;
  Pixels halves = plain_pixels(16, 32, {0});  // the left half white
  for (std::size_t i = 0; i < halves.bytes.size(); ++i) {
    halves.bytes[i] = i % 32 < 16 ? 255 : 0;
  }
  write_image(folder / "it.jpg", halves);
  std::string file = text_of_file(folder / "it.jpg");
  const std::string marker = std::string("Exif\0\0", 6) + tiff(6, true);
  const std::size_t length = marker.size() + 2;
  file.insert(2, std::string("\xff\xe1") + static_cast<char>(length / 256) + static_cast<char>(length % 256) + marker);
  write_text_file(folder / "it.jpg", file);
  const Bytes planes = decode(folder / "it.jpg", {32, 16});
  EXPECT_GT(planes[0], 250);      // above
  EXPECT_LT(planes[31 * 16], 5);  // below
  EXPECT_GT(decode(folder / "it.jpg", {2, 1})[0], 200);
}

TEST(Image, JpegComesClose) {
  const TemporaryFolder folder;
  write_image(folder / "red.jpg", plain_pixels(16, 16, {200, 30, 40}));
  const Bytes planes = decode(folder / "red.jpg", {16, 16});
  EXPECT_NEAR(planes[0], 200, 4);
  EXPECT_NEAR(planes[256], 30, 4);
  EXPECT_NEAR(planes[512], 40, 4);
}

uLong checksum(const Bytes& planes) { return crc32_z(0, planes.data(), planes.size()); }

// The files in images/ and the checksums of their planes are Pillow's, which decodes with libjpeg-turbo too.
TEST(Image, ProgressiveJpegsGiveTheSameBytesEverywhere) {
  EXPECT_EQ(checksum(decode(STAGECOACH_TEST_IMAGES "/progressive.jpg", {13, 21})), 0x868060a8U);
}

TEST(Image, InksBecomeLight) {
  const Bytes planes = decode(STAGECOACH_TEST_IMAGES "/cmyk.jpg", {13, 21});
  // At (x, y) the inks are 10 x, 15 y, 100 and 40 of 255.
  for (const auto& [x, y] : {std::pair{2, 1}, {10, 6}, {18, 11}}) {
    const auto at = static_cast<std::size_t>(21 * y + x);
    EXPECT_NEAR(planes[at], (255 - 10 * x) * 215 / 255, 4) << x << ", " << y;
    EXPECT_NEAR(planes[273 + at], (255 - 15 * y) * 215 / 255, 4) << x << ", " << y;
    EXPECT_NEAR(planes[546 + at], 155 * 215 / 255, 4) << x << ", " << y;
  }
}

TEST(Image, OtherSizesAreResized) {
  const TemporaryFolder folder;
  write_image(folder / "large.png", plain_pixels(50, 70, {10, 20, 30}));
  const Bytes planes = decode(folder / "large.png", {4, 8});
  ASSERT_EQ(planes.size(), 96U);
  for (std::size_t i = 0; i < planes.size(); ++i) {
    EXPECT_EQ(planes[i], 10 * (1 + i / 32)) << "byte " << i;
  }
}

TEST(Image, BrokenOnesAreNamedWithTheReason) {
  const TemporaryFolder folder;
  const auto expect_broken = [&](const std::string& name, const std::vector<std::string>& parts) {
    expect_error<DataError>([&] { decode(folder / name, {32, 32}); }, parts);
  };
  write_text_file(folder / "text.png", "this is no image");
  expect_broken("text.png", {"text.png cannot be decoded", "expected PNG or JPEG"});
  write_text_file(folder / "empty.jpg", "");
  expect_broken("empty.jpg", {"empty.jpg cannot be decoded"});

  Pixels noise{64, 64, 3, counting_dataset(1, 64).inputs.to_vector<std::uint8_t>()};
  for (const char* name : {"whole.png", "whole.jpg"}) {
    write_image(folder / name, noise);
    const std::string bytes = text_of_file(folder / name);
    for (const std::size_t kept : {bytes.size() / 2, bytes.size() / 4, std::size_t{30}}) {
      write_text_file(folder / (std::string("cut_") + name), bytes.substr(0, kept));
      expect_broken(std::string("cut_") + name, {std::string("cut_") + name + " cannot be decoded"});
    }
  }
  std::string bytes = text_of_file(folder / "whole.png");
  for (std::size_t i = 60; i < 200; ++i) {
    bytes[i] = static_cast<char>(~bytes[i]);
  }
  write_text_file(folder / "damaged.png", bytes);
  expect_broken("damaged.png", {"damaged.png cannot be decoded"});
}

}  // namespace
}  // namespace stagecoach
