// The rules of source_rules.h, on the project itself.
#include <gtest/gtest.h>

#include "tests/structure/source_rules.h"

namespace stagecoach {
namespace {

const std::filesystem::path kProject = STAGECOACH_SOURCE_DIR;
using Lines = std::vector<std::string>;

TEST(Structure, NoIncludeRunsUp) { EXPECT_EQ(wrong_includes(kProject), Lines{}); }
TEST(Structure, EverySourceIsBuilt) { EXPECT_EQ(unlisted_sources(kProject), Lines{}); }
TEST(Structure, TheThreadSanitizerSeesAllThreads) { EXPECT_EQ(threads_without_sanitizer(kProject), Lines{}); }
TEST(Structure, RandomNumbersComeFromCore) { EXPECT_EQ(foreign_random_numbers(kProject), Lines{}); }
TEST(Structure, JsonIsReadStrictly) { EXPECT_EQ(careless_json(kProject), Lines{}); }
TEST(Structure, LibrariesNameNoFlags) { EXPECT_EQ(flags_in_libraries(kProject), Lines{}); }
TEST(Structure, ChaptersNameAFlagForEachParameter) { EXPECT_EQ(parameters_without_flag(kProject), Lines{}); }
TEST(Structure, OneSystemIsCalledByItsOwnFiles) { EXPECT_EQ(calls_of_one_system(kProject), Lines{}); }
TEST(Structure, AlgorithmsAreIncluded) { EXPECT_EQ(missing_algorithm_includes(kProject), Lines{}); }
TEST(Structure, LinksLeadSomewhere) { EXPECT_EQ(dead_links(kProject), Lines{}); }

}  // namespace
}  // namespace stagecoach
