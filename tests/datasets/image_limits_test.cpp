/// @file
/// Images that are made to do harm: headers that lie, data that unpack to gigabytes, tables that overflow.

#include <zlib.h>

#include "datasets/image.h"
#include "image_writer.h"
#include "support.h"

namespace stagecoach {
namespace {

std::string number(std::size_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes += static_cast<char>(value >> static_cast<unsigned>(shift) & 0xffU);
  }
  return bytes;
}

std::string chunk(const std::string& type, const std::string& data) {
  const std::string checked = type + data;
  return number(data.size()) + checked +
         number(crc32_z(0, reinterpret_cast<const Bytef*>(checked.data()), checked.size()));
}

std::string packed(const std::string& data) {
  uLongf size = compressBound(data.size());
  std::string bytes(size, '\0');
  EXPECT_EQ(
      compress(reinterpret_cast<Bytef*>(bytes.data()), &size, reinterpret_cast<const Bytef*>(data.data()), data.size()),
      Z_OK);
  return bytes.substr(0, size);
}

/// A grey PNG with this header and these chunks between header and end.
std::string png(std::size_t width, std::size_t height, const std::string& chunks) {
  const std::string header = number(width) + number(height) + std::string("\x08\0\0\0\0", 5);
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", header) + chunks + chunk("IEND", "");
}

std::vector<std::uint8_t> decode(const std::string& file, std::int64_t max_pixels = kMaxPixels) {
  std::vector<std::uint8_t> planes(3);
  decode_image({reinterpret_cast<const std::uint8_t*>(file.data()), file.size()}, "it.png", planes.data(), {1, 1},
               max_pixels);
  return planes;
}

void expect_refusal(const std::string& file, const std::string& reason, std::int64_t max_pixels = kMaxPixels) {
  expect_error<DataError>([&] { decode(file, max_pixels); }, {"image it.png ", reason});
}

const std::string kOnePixel("\0\x4d", 2);  // its row's filter, and its grey

TEST(ImageLimits, PixelsAreCountedBeforeTheyAreDecoded) {
  const std::string few = chunk("IDAT", packed(kOnePixel));
  EXPECT_EQ(decode(png(1, 1, few)), std::vector<std::uint8_t>(3, 0x4d));
  expect_refusal(png(8001, 8000, few), "too large: expected at most 64 megapixels, got 8001 x 8000 pixels (64.0 ");
  expect_refusal(png(100, 99, few), "expected at most 0.009899 megapixels", 9'899);
  expect_refusal(png(100, 99, few), "cannot be decoded", 9'900);  // it is within the bound, and lacks its pixels
  expect_refusal(png(18000, 18000, few), "too large");
  expect_refusal(png(0x7fffffff, 0x7fffffff, few), "too large");
  expect_refusal(png(0xffffffff, 0xffffffff, few), "2^31 rows and columns");

  std::string jpeg = text_of_file(STAGECOACH_TEST_IMAGES "/progressive.jpg");
  const std::size_t frame = jpeg.find("\xff\xc2");
  jpeg.replace(frame + 5, 4, "\xff\xdc\xff\xdc");  // 65500 x 65500
  expect_refusal(jpeg, "too large: expected at most 64 megapixels, got 65500 x 65500 pixels");
}

TEST(ImageLimits, DataThatUnpackToMoreThanThePixelsAreRefused) {
  expect_refusal(png(1, 1, chunk("IDAT", packed(std::string(50'000'000, '\0')))), "the decompressed data is larger");
}

TEST(ImageLimits, ChunksThatLieAreRefused) {
  const std::string good = png(1, 1, chunk("IDAT", packed(kOnePixel)));
  std::string longer = good;
  longer.replace(33, 4, number(0x40000000));
  expect_refusal(longer, "the file is truncated");
  longer.replace(33, 4, number(0xffffffff));
  expect_refusal(longer, "the file is truncated");
  expect_refusal(good.substr(0, good.size() - 12), "the file is truncated");
  expect_refusal(png(1, 1, chunk("IDAT", "") + chunk("IDAT", packed(kOnePixel))), "the first data chunk is empty");
  expect_refusal("\x89PNG\r\n\x1a\n" + chunk("IDAT", packed(kOnePixel)), "expected a PNG header");
}

TEST(ImageLimits, EveryChangedBitOfAPngIsNoticed) {
  const std::string good = png(1, 1, chunk("IDAT", packed(kOnePixel)));
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string damaged = good;
    damaged[bit / 8] = static_cast<char>(static_cast<unsigned char>(damaged[bit / 8]) ^ (1U << bit % 8));
    EXPECT_THROW(decode(damaged), DataError) << "bit " << bit;
  }
}

TEST(ImageLimits, HuffmanTablesOfTooManyCodesAreRefused) {
  const std::string table = "\xff\xc4" + std::string("\x01\x13\0", 3) + std::string(272, '\xff');
  expect_refusal("\xff\xd8" + table + std::string("\xff\xd9"), "Bogus Huffman table definition");
}

TEST(ImageLimits, EndlessRefinementsAreRefused) {
  const std::string file = text_of_file(STAGECOACH_TEST_IMAGES "/two_scans.jpg");  // a scan of means, one of the rest
  const std::size_t begin = file.find("\xff\xda");
  const std::string scan = file.substr(begin, file.find("\xff\xc4", begin) - begin);
  const auto with_scans = [&](std::size_t more) {
    std::string scans;
    for (std::size_t i = 0; i < more; ++i) {
      scans += scan;
    }
    return std::string(file).insert(begin, scans);
  };
  EXPECT_EQ(decode(with_scans(98)), std::vector<std::uint8_t>(3, 77));
  expect_refusal(with_scans(99), "expected at most 100 scans");
}

TEST(ImageLimits, JpegsThatAreCutOffAreRefused) {
  const std::string file = text_of_file(STAGECOACH_TEST_IMAGES "/progressive.jpg");
  for (std::size_t size = 3; size < file.size(); ++size) {
    EXPECT_THROW(decode(file.substr(0, size)), DataError) << size << " bytes";
  }
  EXPECT_EQ(decode(file + "what follows does not matter"), decode(file));
}

}  // namespace
}  // namespace stagecoach
