// The command line of the chapter programs: chapters/common/flags.h.

#include "chapters/common/flags.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/base/error.h"

namespace stagecoach::test {
namespace {

const Chapter kOneDevice{.number = 1, .program = "ch01_single_device", .title = "One device.", .example = "--smoke"};

Settings parsed(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), kOneDevice.program.c_str());
  return parse_flags(static_cast<int>(arguments.size()), arguments.data(), kOneDevice);
}

std::string refusal_of(const std::vector<const char*>& arguments) {
  try {
    parsed(arguments);
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(Flags, AreWhatTheCommandLineSays) {
  const Settings settings = parsed({"--epochs", "7", "--augment", "--optimizer=adam", "--no-graph", "--graph"});
  EXPECT_EQ(settings.training.epochs, 7);
  EXPECT_TRUE(settings.training.augment);
  EXPECT_EQ(settings.training.optimizer, OptimizerKind::adam);
  EXPECT_TRUE(settings.world.cuda_graph) << "the last one counts";
  EXPECT_FALSE(parsed({"--no-graph"}).world.cuda_graph);
}

TEST(Flags, RefuseAWrongValueAndAnUnknownName) {
  EXPECT_NE(refusal_of({"--batch-size", "32", "--epochs", "none"}).find("got 'none'"), std::string::npos);
  EXPECT_NE(refusal_of({"--batch-size", "32", "--unheard-of"}).find("--unheard-of"), std::string::npos);
}

TEST(Flags, ThatAreOnOrOffRefuseOtherValues) {
  for (const char* flag : {"--augment=7up", "--no-graph=x", "--augment=99999999999999999999"}) {
    EXPECT_EQ(refusal_of({flag}).find("--"), 0U) << flag << ": " << refusal_of({flag});
  }
  EXPECT_FALSE(parsed({"--augment=false"}).training.augment);
}

TEST(Flags, OfOtherChaptersAreExplained) {
  const std::string why = " is not a flag of ch01_single_device: ";
  EXPECT_EQ(refusal_of({"--ranks", "2"}).find("--ranks" + why), 0U);
  EXPECT_EQ(refusal_of({"--ranks=2"}).find("--ranks" + why), 0U);
  EXPECT_EQ(refusal_of({"--no-recompute"}).find("--no-recompute" + why), 0U);
  EXPECT_EQ(refusal_of({"ranks"}).find(why), std::string::npos);
  EXPECT_EQ(refusal_of({"--rank"}).find(why), std::string::npos);
}

// The fuzzer found that a name which no folder can have ended in another kind of error.
TEST(Flags, RefuseToResumeFromANameThatIsTooLong) {
  const std::string name(5000, 'x');
  try {
    parsed({"--resume", name.c_str()});
    FAIL() << "accepted";
  } catch (const DataError& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.find("--resume " + name + ": "), 0U);
    EXPECT_NE(message.find("check the name and its permissions"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace stagecoach::test
