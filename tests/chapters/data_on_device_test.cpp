/// @file
/// --data-on-device in all chapters: the weights of the same run without it.

#include "tests/chapters/pipelines.h"

namespace stagecoach::test {
namespace {

class DataOnDevice : public PipelineTest {
 protected:
  void expect_same(const std::string& program, const std::string& name, const Flags& flags) {
    const Outcome without = train(program, name, flags);
    ASSERT_EQ(without.exit_code, 0) << without.err;
    const Outcome with = train(program, name + "-on-device", joined(flags, {"--data-on-device"}));
    ASSERT_EQ(with.exit_code, 0) << with.err;
    expect_same_training(name + "-on-device", name);
  }
};

TEST_F(DataOnDevice, EveryChapterTrainsTheSame) {
  make_ragged_data();
  expect_same(kCh01, "one", {"--augment"});
  expect_same(kCh02, "naive", {"--ranks", "2", "--augment"});
  expect_same(kCh03, "gpipe", {"--ranks", "3", "--microbatches", "3"});
  expect_same(kCh04, "pipedream", {"--ranks", "2", "--balance", "layers"});
  expect_same(kCh05, "interleaved", {"--ranks", "2", "--microbatches", "4", "--balance", "layers"});
  expect_same(kCh06, "ddp", {"--ranks", "2", "--augment"});
  expect_same(kCh07, "controller", {"--ranks", "2", "--balance", "layers"});
  expect_same(kCh08, "mesh", {"--mesh", "tp=2"});
}

TEST_F(DataOnDevice, IsMemoryOfTheRank) {
  make_data(640, 32);  // 1.9 MiB
  const auto peak = [&](const Flags& flags) {
    const Outcome outcome = train(kCh01, "run", joined(flags, {"--clock", "modelled", "--summary"}));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    const std::size_t at = outcome.out.find("memory per rank");
    EXPECT_NE(at, std::string::npos) << outcome.out;
    return std::stod(outcome.out.substr(outcome.out.find_first_of("0123456789", at)));
  };
  const double without = peak({});
  EXPECT_GE(peak({"--data-on-device"}), without + 1.8);
}

TEST_F(DataOnDevice, IsRefusedWhereResizingFollowsAugmentation) {
  make_data(8, 8);
  const Outcome outcome =
      train(kCh01, "run", {"--data-on-device", "--augment", "--model", "vit", "--image-size", "16"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("with --data-on-device and augmentation expected images of 16 x 16 pixels, got 32 x 32"),
            std::string::npos)
      << outcome.err;
}

}  // namespace
}  // namespace stagecoach::test
