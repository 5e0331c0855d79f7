#include "datasets/image.h"

#include <zlib.h>

#include "datasets/files.h"
#include "image_writer.h"
#include "support.h"

namespace stagecoach {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes decode(const std::filesystem::path& path, ImageSize size) {
  Bytes planes(static_cast<std::size_t>(3 * size.height * size.width));
  decode_image(read_file(path), path.string(), planes.data(), size);
  return planes;
}

TEST(Image, PngPixelsAreExactAndBecomePlanes) {
  const TemporaryFolder folder;
  write_image(folder / "rgb.png", {1, 2, 3, {1, 2, 3, 4, 5, 6}});
  EXPECT_EQ(decode(folder / "rgb.png", {1, 2}), (Bytes{1, 4, 2, 5, 3, 6}));
  write_image(folder / "grey.png", {1, 2, 1, {7, 9}});
  EXPECT_EQ(decode(folder / "grey.png", {1, 2}), (Bytes{7, 9, 7, 9, 7, 9}));
  write_image(folder / "alpha.png", {1, 2, 4, {1, 2, 3, 0, 4, 5, 6, 128}});
  EXPECT_EQ(decode(folder / "alpha.png", {1, 2}), (Bytes{1, 4, 2, 5, 3, 6}));
  write_image(folder / "grey_alpha.png", {1, 2, 2, {7, 0, 9, 255}});
  EXPECT_EQ(decode(folder / "grey_alpha.png", {1, 2}), (Bytes{7, 9, 7, 9, 7, 9}));
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
  write_text(folder / "text.png", "this is no image");
  expect_broken("text.png", {"text.png cannot be decoded", "expected PNG or JPEG"});
  write_text(folder / "empty.jpg", "");
  expect_broken("empty.jpg", {"empty.jpg cannot be decoded"});

  Pixels noise{64, 64, 3, counting_dataset(1, 64).images.to_vector<std::uint8_t>()};
  for (const char* name : {"whole.png", "whole.jpg"}) {
    write_image(folder / name, noise);
    const std::string bytes = read_text(folder / name);
    for (const std::size_t kept : {bytes.size() / 2, bytes.size() / 4, std::size_t{30}}) {
      write_text(folder / (std::string("cut_") + name), bytes.substr(0, kept));
      expect_broken(std::string("cut_") + name, {std::string("cut_") + name + " cannot be decoded"});
    }
  }
  std::string bytes = read_text(folder / "whole.png");
  for (std::size_t i = 60; i < 200; ++i) {
    bytes[i] = static_cast<char>(~bytes[i]);
  }
  write_text(folder / "damaged.png", bytes);
  expect_broken("damaged.png", {"damaged.png cannot be decoded"});
}

}  // namespace
}  // namespace stagecoach
