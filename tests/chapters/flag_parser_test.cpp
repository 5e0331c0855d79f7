// The command line of the chapter programs: chapters/common/flags.h.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "chapters/common/flags.h"
#include "core/base/error.h"

namespace stagecoach::test {
namespace {

const Chapter kOneDevice{.number = 1, .program = "ch01_single_device", .title = "One device.", .example = "--smoke"};

Settings parsed_line(FlagParser& parser, std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), kOneDevice.program.c_str());
  return parser.parse(static_cast<int>(arguments.size()), arguments.data());
}

std::string refusal_of_line(const std::vector<const char*>& arguments) {
  FlagParser parser(kOneDevice);
  try {
    parsed_line(parser, arguments);
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(FlagParser, ForgetsTheCommandLineBefore) {
  FlagParser parser(kOneDevice);
  const std::string untouched = to_json(parsed_line(parser, {}));
  const Settings changed = parsed_line(parser, {"--epochs", "7", "--augment", "--optimizer=adam"});
  EXPECT_EQ(changed.training.epochs, 7);
  EXPECT_TRUE(changed.training.augment);
  EXPECT_EQ(to_json(parsed_line(parser, {})), untouched);
}

TEST(FlagParser, ForgetsAWrongCommandLineToo) {
  FlagParser parser(kOneDevice);
  const std::string untouched = to_json(parsed_line(parser, {}));
  EXPECT_THROW(parsed_line(parser, {"--batch-size", "32", "--epochs", "none"}), UsageError);
  EXPECT_THROW(parsed_line(parser, {"--batch-size", "32", "--unheard-of"}), UsageError);
  EXPECT_EQ(to_json(parsed_line(parser, {})), untouched);
}

TEST(FlagParser, ExplainsTheFlagsOfOtherChapters) {
  const std::string why = " is not a flag of ch01_single_device: ";
  EXPECT_EQ(refusal_of_line({"--ranks", "2"}).find("--ranks" + why), 0U);
  EXPECT_EQ(refusal_of_line({"--ranks=2"}).find("--ranks" + why), 0U);
  EXPECT_EQ(refusal_of_line({"--no-recompute"}).find("--no-recompute" + why), 0U);
  EXPECT_EQ(refusal_of_line({"ranks"}).find(why), std::string::npos);
  EXPECT_EQ(refusal_of_line({"--rank"}).find(why), std::string::npos);
}

// The fuzzer found that a name which no folder can have ended in another kind of error.
TEST(FlagParser, RefusesToResumeFromANameThatIsTooLong) {
  FlagParser parser(kOneDevice);
  const std::string name(5000, 'x');
  try {
    parsed_line(parser, {"--resume", name.c_str()});
    FAIL() << "accepted";
  } catch (const DataError& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.find("--resume " + name + ": "), 0U);
    EXPECT_NE(message.find("check the name and its permissions"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace stagecoach::test
