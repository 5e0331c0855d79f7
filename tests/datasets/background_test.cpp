#include "datasets/background.h"

#include "support.h"

namespace stagecoach {
namespace {

TEST(Backgrounds, HaveNamesOrSixDigits) {
  EXPECT_EQ(background_color_from_text("white"), (BackgroundColor{255, 255, 255}));
  EXPECT_EQ(background_color_from_text("black"), (BackgroundColor{0, 0, 0}));
  EXPECT_EQ(background_color_from_text("grey"), (BackgroundColor{128, 128, 128}));
  EXPECT_EQ(background_color_from_text("#01aBff"), (BackgroundColor{1, 171, 255}));
  for (const char* text : {"", "red", "#", "#12345", "#1234567", "#12345g", "#-12345", "# 12345", "123456", "White"}) {
    expect_error<UsageError>([&] { background_color_from_text(text); }, {"expected white, black, grey or #rrggbb"});
  }
}

}  // namespace
}  // namespace stagecoach
