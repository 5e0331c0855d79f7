#include "datasets/augment.h"

#include <gtest/gtest.h>

#include <vector>

namespace stagecoach {
namespace {

constexpr ImageSize kSize{32, 39};  // padded by 4: an eighth, rounded down

/// The pixel of the padded, cropped and mirrored image, straight from the definition.
std::uint8_t expected(const std::vector<std::uint8_t>& source, std::int64_t c, std::int64_t y, std::int64_t x,
                      std::int64_t down, std::int64_t right, bool mirror) {
  const std::int64_t from_y = y + down;
  const std::int64_t from_x = (mirror ? kSize.width - 1 - x : x) + right;
  const bool inside = from_y >= 0 && from_y < kSize.height && from_x >= 0 && from_x < kSize.width;
  return inside ? source[static_cast<std::size_t>((c * kSize.height + from_y) * kSize.width + from_x)]
                : std::uint8_t{0};
}

TEST(Augment, EveryCropAndMirrorImageFollowsTheDefinition) {
  std::vector<std::uint8_t> source(static_cast<std::size_t>(3 * kSize.height * kSize.width));
  for (std::size_t i = 0; i < source.size(); ++i) {
    source[i] = static_cast<std::uint8_t>(i % 251 + 1);
  }
  constexpr std::int64_t kPlane = kSize.height * kSize.width;
  // Word w gives the shift floor(9 w / 2^32) - 4: the middle of each ninth.
  const auto word = [](int shift) { return static_cast<std::uint32_t>((2 * (shift + 4) + 1) * 0x1p32 / 18); };
  for (int down = -4; down <= 4; ++down) {
    for (int right = -4; right <= 4; ++right) {
      for (const bool mirror : {false, true}) {
        std::vector<std::uint8_t> target(source.size(), 99);
        augment_image(source.data(), target.data(), kSize, {word(down), word(right), mirror ? ~0U : 0U, 0});
        for (std::int64_t i = 0; i < static_cast<std::int64_t>(target.size()); ++i) {
          ASSERT_EQ(target[static_cast<std::size_t>(i)],
                    expected(source, i / kPlane, i % kPlane / kSize.width, i % kSize.width, down, right, mirror))
              << "byte " << i << ", down " << down << ", right " << right << ", mirror " << mirror;
        }
      }
    }
  }
}

TEST(Augment, ImagesOfLessThanEightPixelsAreNotMoved) {
  const std::vector<std::uint8_t> source = {1, 2, 3};  // [3, 1, 1]
  for (const std::uint32_t word : {0U, 0x7fffffffU, ~0U}) {
    std::vector<std::uint8_t> target(3, 99);
    augment_image(source.data(), target.data(), {1, 1}, {word, word, word, 0});
    EXPECT_EQ(target, source);
  }
}

}  // namespace
}  // namespace stagecoach
