#include "core/base/printable.h"

#include <gtest/gtest.h>

#include <string>

namespace stagecoach {
namespace {

TEST(Printable, TextStaysAsItIs) {
  for (const char* text : {"", "train/cat/a.png", "déjà vu", "猫/犬.png", "🚂", "a \\ b", "<&>\"'", "क्‍ष"}) {
    EXPECT_EQ(printable(text), text);
  }
}

TEST(Printable, TerminalsGetNoOrders) {
  EXPECT_EQ(printable("\033[31mred\033]0;title\007"), "\\x1b[31mred\\x1b]0;title\\x07");
  EXPECT_EQ(printable("a\nb\tc\rd\x7f"), "a\\nb\\tc\\rd\\x7f");
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\u009b31m"), "\\u009b31m") << "one of the C1 controls, which begins a sequence as ESC [ does";
}

TEST(Printable, NothingIsReorderedOrHidden) {
  EXPECT_EQ(printable("a\u202egnp.b"), "a\\u202egnp.b");
  EXPECT_EQ(printable("a\u2066b\u2069"), "a\\u2066b\\u2069");
  EXPECT_EQ(printable("a\u2028b\u200b\ufeff"), "a\\u2028b\\u200b\\ufeff");
  EXPECT_EQ(printable("\U000e0041"), "\\U000e0041");
}

TEST(Printable, WhatIsNotUtf8IsShownByteByByte) {
  EXPECT_EQ(printable("a\xff\x80z"), "a\\xff\\x80z");
  EXPECT_EQ(printable("caf\xe9"), "caf\\xe9") << "Latin-1, cut off as UTF-8";
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf") << "'/' in more bytes than it needs";
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "half of a surrogate pair";
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond the last character";
}

TEST(Printable, TwiceIsAsGoodAsOnce) {
  const std::string once = printable("\033\n\xff\u202e\\");
  EXPECT_EQ(printable(once), once);
}

TEST(Printable, XmlTextIsNoMarkup) {
  EXPECT_EQ(xml_text("<a href=\"x\" b='y'>&amp;"), "&lt;a href=&quot;x&quot; b=&#39;y&#39;&gt;&amp;amp;");
  EXPECT_EQ(xml_text("\033\xff\uffff"), "\\x1b\\xff\\uffff") << "what XML 1.0 has no characters for";
}

}  // namespace
}  // namespace stagecoach
