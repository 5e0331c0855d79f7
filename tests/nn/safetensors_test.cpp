#include "nn/safetensors.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>

#include "core/allocator.h"
#include "core/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::random_tensor;
using test::read_bytes;
using test::same_bytes;
using test::TemporaryFolder;

Tensor bytes(const std::vector<std::uint8_t>& values) {
  return Tensor::from<std::uint8_t>(values, {static_cast<std::int64_t>(values.size())});
}

TEST(Safetensors, TheWriterAddsOneTensorAfterTheOther) {
  const TemporaryFolder folder;
  const TensorFile file{{{"a", random_tensor({3, 5}, "a")}, {"empty", Tensor::empty({0, 2})}, {"b", bytes({7, 8})}},
                        {{"k", "v"}}};
  save_tensors(folder.file("whole"), file);
  std::vector<TensorFileWriter::Announced> announced;
  for (const auto& [name, tensor] : file.tensors) {
    announced.push_back({{name, tensor.dtype(), tensor.shape()}, crc32_of(tensor)});
  }
  {
    TensorFileWriter writer(folder.file("parts"), announced, file.metadata);
    writer.add(file.tensors[0].second.clone());
    EXPECT_TRUE(fails_with<Error>({"'empty'", "float32[0, 2]"}, [&] { writer.add(file.tensors[2].second); }));
    writer.add(file.tensors[1].second);
    EXPECT_TRUE(fails_with<Error>({"2 of 3"}, [&] { writer.commit(); }));
    EXPECT_TRUE(fails_with<Error>({"'b'", "expected the announced"}, [&] { writer.add(bytes({7, 9})); }));
    writer.add(file.tensors[2].second);
    EXPECT_TRUE(fails_with<Error>({"after all 3"}, [&] { writer.add(bytes({})); }));
    EXPECT_FALSE(std::filesystem::exists(folder.file("parts")));
    writer.commit();
  }
  EXPECT_EQ(read_bytes(folder.file("parts")), read_bytes(folder.file("whole")));
  { TensorFileWriter writer(folder.file("left"), announced); }
  EXPECT_FALSE(std::filesystem::exists(folder.file("left")));
}

TEST(Safetensors, LoadsOnlyWhatIsKeptAndVerifiesAll) {
  const TemporaryFolder folder;
  constexpr std::int64_t kLarge = 1 << 20;  // numbers
  save_tensors(folder.file("t"), {{{"a", random_tensor({3}, "a")}, {"b", random_tensor({kLarge}, "b")}}, {}});
  const auto keep = [](const std::string& name) { return name == "a"; };
  Allocator& memory = allocator(Device{});
  memory.reset_peak();
  const std::size_t before = memory.stats().peak_bytes;
  const TensorFile loaded = load_tensors(folder.file("t"), keep);
  EXPECT_LT(memory.stats().peak_bytes - before, static_cast<std::size_t>(kLarge));
  ASSERT_EQ(loaded.tensors.size(), 1U);
  EXPECT_TRUE(same_bytes(loaded.tensors[0].second, random_tensor({3}, "a")));
  ASSERT_EQ(loaded.contents.size(), 2U);
  EXPECT_EQ(loaded.contents[1].name, "b");
  EXPECT_EQ(loaded.contents[1].shape, Shape{kLarge});
  std::string damaged = read_bytes(folder.file("t"));
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  test::write_bytes(folder.file("t"), damaged);
  EXPECT_TRUE(fails_with<DataError>({"damaged"}, [&] { load_tensors(folder.file("t"), keep); }));
}

TEST(Safetensors, WhatIsKeptMustFitIntoMemory) {
  const TemporaryFolder folder;
  std::string header = R"({"huge":{"dtype":"U8","shape":[824902156288],"data_offsets":[0,824902156288]}})";
  header.resize(120, ' ');
  test::write_bytes(folder.file("t"), std::string("\x78\0\0\0\0\0\0\0", 8) + header);
  std::error_code error;
  std::filesystem::resize_file(folder.file("t"), 824'902'156'288 + 128, error);
  if (error) {
    GTEST_SKIP() << "this file system has no sparse files of 800 GB";
  }
  EXPECT_TRUE(
      fails_with<DataError>({"does not fit into memory", "824902156288"}, [&] { load_tensors(folder.file("t")); }));
}

/// The layout that the format's description asks for, byte by byte. The checksum was computed by Python's zlib.crc32.
TEST(Safetensors, GoldenLayout) {
  const TemporaryFolder folder;
  save_tensors(folder.file("t"), {{{"a", Tensor::from<float>({1, -2}, {2, 1})}, {"b", bytes({7})}}, {{"k", "v"}}});
  std::string header =
      R"({"__metadata__":{"stagecoach_crc32":"9722a1c2","stagecoach_producer":"stagecoach","k":"v"},)"
      R"("a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[1],"data_offsets":[8,9]}})";
  header.resize(200, ' ');
  std::string expected = std::string("\xc8\0\0\0\0\0\0\0", 8) + header;
  expected += std::string("\0\0\x80\x3f\0\0\0\xc0\x07", 9);
  EXPECT_EQ(read_bytes(folder.file("t")), expected);
}

TEST(Safetensors, RoundTripOfAllTypes) {
  const TemporaryFolder folder;
  const double infinity = std::numeric_limits<double>::infinity();
  const TensorFile file{
      {{"floats", Tensor::from<float>({0.1F, -0.0F, std::numeric_limits<float>::quiet_NaN(), 1e-42F}, {2, 2})},
       {"bytes", bytes({0, 255, 7})},
       {"doubles", Tensor::from<double>({0.1, -infinity, 1e-310}, {3, 1, 1})},
       {"ints", Tensor::from<std::int32_t>({-1, 2147483647}, {1, 2})},
       {"halves", Tensor::from<Half>({Half{1}, Half{0x8000}, Half{0x7c00}}, {3})},
       {"scalar", Tensor::full({}, 3)},
       {"empty", Tensor::empty({4, 0})},
       {"", Tensor::full({1}, 4)},
       {"Grüße \"\\\n\t", Tensor::full({1}, 5)}},
      {{"", ""}, {"epoch", "3"}, {"ключ", "\"quoted\""}}};
  save_tensors(folder.file("t"), file);
  const TensorFile loaded = load_tensors(folder.file("t"));
  EXPECT_EQ(loaded.metadata, file.metadata);
  ASSERT_EQ(loaded.tensors.size(), file.tensors.size());
  for (std::size_t i = 0; i < file.tensors.size(); ++i) {
    // The empty tensor shares its place with its neighbour, so their order may turn.
    const auto& [name, tensor] = file.tensors[i];
    const auto found = std::find_if(loaded.tensors.begin(), loaded.tensors.end(),
                                    [&, expected = name](const auto& each) { return each.first == expected; });
    ASSERT_NE(found, loaded.tensors.end()) << name;
    EXPECT_TRUE(same_bytes(found->second, tensor)) << name;
  }
}

TEST(Safetensors, KeepsTheOrderOfTensors) {
  const TemporaryFolder folder;
  save_tensors(folder.file("t"), {{{"z", bytes({1})}, {"a", bytes({2})}, {"m", bytes({3})}}, {}});
  const TensorFile loaded = load_tensors(folder.file("t"));
  EXPECT_EQ(loaded.tensors[0].first, "z");
  EXPECT_EQ(loaded.tensors[1].first, "a");
  EXPECT_EQ(loaded.tensors[2].first, "m");
}

TEST(Safetensors, AnEmptyFileIsOneToo) {
  const TemporaryFolder folder;
  save_tensors(folder.file("t"), {});
  EXPECT_TRUE(load_tensors(folder.file("t")).tensors.empty());
  EXPECT_EQ(read_bytes(folder.file("t")).size() % 8, 0U);
}

TEST(Safetensors, DataBeginsAtAMultipleOfEight) {
  const TemporaryFolder folder;
  for (std::size_t length = 1; length < 18; ++length) {
    save_tensors(folder.file("t"), {{{std::string(length, 'n'), bytes({1, 2, 3})}}, {}});
    EXPECT_EQ((read_bytes(folder.file("t")).size() - 3) % 8, 0U);
  }
}

TEST(Safetensors, EqualContentsGiveEqualFiles) {
  const TemporaryFolder folder;
  const Tensor tensor = random_tensor({3, 5}, "x", DType::float32);
  save_tensors(folder.file("a"), {{{"t", tensor}}, {{"y", "2"}, {"x", "1"}}});
  save_tensors(folder.file("b"), {{{"t", tensor.clone()}}, {{"x", "1"}, {"y", "2"}}});
  save_tensors(folder.file("c"), {{{"t", tensor.to(Device{DeviceType::cpu, 2})}}, {{"x", "1"}, {"y", "2"}}});
  EXPECT_EQ(read_bytes(folder.file("a")), read_bytes(folder.file("b")));
  EXPECT_EQ(read_bytes(folder.file("a")), read_bytes(folder.file("c")));
}

TEST(Safetensors, SavesViews) {
  const TemporaryFolder folder;
  const Tensor tensor = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {3, 2});
  save_tensors(folder.file("t"), {{{"row", tensor.narrow(1, 1)}}, {}});
  EXPECT_EQ(load_tensors(folder.file("t")).tensors[0].second.to_vector<float>(), (std::vector<float>{3, 4}));
}

TEST(Safetensors, RefusesNamesThatTheFileCouldNotHold) {
  const TemporaryFolder folder;
  const auto save = [&](const NamedTensors& tensors, const std::map<std::string, std::string>& metadata) {
    return [&, tensors, metadata] { save_tensors(folder.file("t"), {tensors, metadata}); };
  };
  EXPECT_THROW(save({{"a", bytes({1})}, {"a", bytes({2})}}, {})(), Error);
  EXPECT_THROW(save({{"__metadata__", bytes({1})}}, {})(), Error);
  EXPECT_THROW(save({{"\xff", bytes({1})}}, {})(), Error);
  EXPECT_THROW(save({}, {{"k", "\xc3"}})(), Error);
  EXPECT_THROW(save({}, {{"stagecoach_crc32", "00000000"}})(), Error);
  EXPECT_EQ(folder.file_count(), 0U);
}

TEST(Safetensors, RefusesWhatIsNoFile) {
  const TemporaryFolder folder;
  EXPECT_TRUE(fails_with<DataError>({folder.file("none").c_str()}, [&] { load_tensors(folder.file("none")); }));
  EXPECT_TRUE(fails_with<DataError>({"not a regular file"}, [&] { load_tensors(folder.path().string()); }));
  EXPECT_TRUE(fails_with<DataError>({"not a regular file"}, [&] { load_tensors("/dev/null"); }));
}

}  // namespace
}  // namespace stagecoach
