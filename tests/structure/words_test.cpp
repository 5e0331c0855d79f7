#include "tests/structure/words.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace stagecoach {
namespace {

using Lines = std::vector<std::string>;

TEST(Words, OfTheProjectAreTheFields) { EXPECT_EQ(home_made_words(STAGECOACH_SOURCE_DIR), Lines{}); }

TEST(Words, ThatAreHomeMadeAreFound) {
  const std::filesystem::path root = std::filesystem::path(testing::TempDir()) / "stagecoach_words";
  std::filesystem::create_directories(root / "core");
  std::ofstream(root / "core/a.h") << "// Numbers of all layers, one line per rank.\n"
                                      "/// A rank waits for ever, but for rank 0.\n"
                                      "int Patience;  // a line a rank\n"
                                      "print(\"{} rank(s)\", ranks);  // shape(s)\n";
  EXPECT_EQ(home_made_words(root),
            (Lines{"core/a.h:2: 'for ever': write forever", "core/a.h:2: 'but for': write except for",
                   "core/a.h:3: 'Patience': write WaitPolicy", "core/a.h:3: 'line a rank': write per",
                   "core/a.h:4: '(s)' after a number: write counted(…), core/base/phrases.h"}));
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace stagecoach
