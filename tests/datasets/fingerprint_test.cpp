#include "datasets/fingerprint.h"

#include <zlib.h>

#include <functional>
#include <utility>

#include "support.h"

namespace stagecoach {
namespace {

/// Returns how data that `change` has changed differ from the original.
std::string after(const std::function<void(TrainTest&)>& change) {
  const TrainTest before{counting_dataset(40, 4), counting_dataset(20, 4)};
  TrainTest now{counting_dataset(40, 4), counting_dataset(20, 4)};
  change(now);
  return difference(fingerprint_of(before), fingerprint_of(now));
}

std::string same_numbers(const std::string& parts) {
  return "the classes and their numbers of images are the same, but " + parts +
         " images, their labels or their order changed";
}

std::uint8_t* pixels(Dataset& data) { return data.inputs.mutable_data<std::uint8_t>(); }
std::int32_t* labels(Dataset& data) { return data.targets.mutable_data<std::int32_t>(); }

TEST(Fingerprint, EqualDataDoNotDiffer) {
  EXPECT_EQ(after([](TrainTest&) {}), "");
  EXPECT_EQ(difference(fingerprint_of({}), fingerprint_of({})), "");
}

TEST(Fingerprint, TellsWhichClassesChanged) {
  EXPECT_EQ(after([](TrainTest& now) { now.train.classes[3] = "cat"; }), "class 3 was 'd' and is now 'cat'");
  EXPECT_EQ(after([](TrainTest& now) { std::swap(now.train.classes[0], now.train.classes[9]); }),
            "class 0 was 'a' and is now 'j', class 9 was 'j' and is now 'a'");
  EXPECT_EQ(after([](TrainTest& now) { now.train.classes.emplace_back("cat"); }),
            "the 10 classes are now 11 ('cat' is new)");
  EXPECT_EQ(after([](TrainTest& now) {
              now.train = {now.train.inputs.narrow(0, 1), now.train.targets.narrow(0, 1), {"x"}};
            }),
            "the 10 classes are now 1 ('a' is missing, 'b' is missing, 'c' is missing, and 8 more)");
  EXPECT_EQ(after([](TrainTest& now) { now.train.classes[0] = "\x1b[1m"; }), "class 0 was 'a' and is now '\\x1b[1m'");
}

TEST(Fingerprint, TellsWhichNumbersChanged) {
  EXPECT_EQ(after([](TrainTest& now) { labels(now.train)[0] = 1; }),
            "'a' had 4 training images and now has 3, 'b' had 4 training images and now has 5");
  EXPECT_EQ(after([](TrainTest& now) { now.test = counting_dataset(19, 4); }), "'j' had 2 test images and now has 1");
}

TEST(Fingerprint, TellsThatImagesLabelsOrTheirOrderChanged) {
  EXPECT_EQ(after([](TrainTest& now) { pixels(now.train)[1919] ^= 1U; }), same_numbers("training"));
  EXPECT_EQ(after([](TrainTest& now) { pixels(now.test)[0] ^= 0x80U; }), same_numbers("test"));
  EXPECT_EQ(after([](TrainTest& now) {
              std::swap(labels(now.train)[0], labels(now.train)[1]);
              std::swap(labels(now.test)[0], labels(now.test)[1]);
            }),
            same_numbers("training and test"));
  EXPECT_EQ(after([](TrainTest& now) {
              now.train.inputs = now.train.inputs.reshape({40, 3, 2, 8});
            }),
            same_numbers("training"));
}

TEST(Fingerprint, DependsOnTheOrderOfTheRecords) {
  EXPECT_EQ(after([](TrainTest& now) {  // two images of one class
              for (int i = 0; i < 48; ++i) {
                std::swap(pixels(now.train)[i], pixels(now.train)[480 + i]);
              }
            }),
            same_numbers("training"));
}

TEST(Fingerprint, NamesHaveADigestOfTheirOwn) {
  const auto digest = [](const std::vector<std::string>& classes) { return names_digest({.classes = classes}); };
  EXPECT_EQ(digest({"cat", "dog"}), digest({"cat", "dog"}));
  EXPECT_NE(digest({"cat", "dog"}), digest({"dog", "cat"}));
  EXPECT_NE(digest({"cat", "dog"}), digest({"catd", "og"}));
}

TEST(Fingerprint, ADigestIsTheCrcOfTheShapeTheInputsAndTheTargets) {
  const Dataset data = counting_dataset(40, 4);
  const auto crc_after = [](uLong crc, const void* bytes, std::size_t count) {
    return crc32(crc, static_cast<const Bytef*>(bytes), static_cast<uInt>(count));
  };
  uLong crc = crc_after(0, "3 4 4", 5);
  crc = crc_after(crc, data.inputs.raw_data(), data.inputs.bytes());
  crc = crc_after(crc, data.targets.raw_data(), data.targets.bytes());
  EXPECT_EQ(fingerprint_of({data, data}).train.digest, crc);
}

TEST(Fingerprint, TokensAreDigestedWithoutCounts) {
  const auto tokens = [](int last) { return Tensor::from(std::vector<std::int32_t>{1, 2, 3, last}, {2, 2}); };
  const Fingerprint before = fingerprint_of({{tokens(4), tokens(4), {"a", "b"}}, {tokens(4), tokens(4), {"a", "b"}}});
  EXPECT_TRUE(before.train.counts.empty());
  EXPECT_NE(before, fingerprint_of({{tokens(4), tokens(4), {"a", "b"}}, {tokens(4), tokens(5), {"a", "b"}}}));
}

// 4 GiB, of which at most 1 GiB is read; the number of samples still counts.
TEST(Fingerprint, OfLargeDataReadsSomeSamples) {
  class Zeros : public SampleSource {
   public:
    explicit Zeros(std::int64_t size) : size_(size) {}
    std::int64_t size() const override { return size_; }
    SampleType input() const override { return {{64 << 20}, DType::uint8}; }
    SampleType target() const override { return {{}, DType::int32}; }
    void read(std::int64_t /*index*/, Tensor& input, Tensor& target) const override {
      input.fill(0);
      target.fill(0);
      ++reads;
    }
    mutable int reads = 0;

   private:
    std::int64_t size_;
  };
  const auto digest_of = [](const std::shared_ptr<Zeros>& zeros) {
    Dataset data;
    data.samples = zeros;
    return fingerprint_of({data, {}}).train.digest;
  };
  const auto zeros = std::make_shared<Zeros>(64);
  const std::uint32_t digest = digest_of(zeros);
  EXPECT_GT(zeros->reads, 8);
  EXPECT_LE(zeros->reads, 16);
  EXPECT_NE(digest, digest_of(std::make_shared<Zeros>(65)));
}

}  // namespace
}  // namespace stagecoach
