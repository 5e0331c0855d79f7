/// @file
/// Files that other programs wrote: read when they keep the format's rules, refused with a reason when not.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/base/error.h"
#include "core/random.h"
#include "nn/safetensors.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::TemporaryFolder;
using test::write_bytes;

class Foreign : public testing::Test {
 protected:
  TensorFile load(const std::string& header, const std::string& data) const {
    const std::uint64_t length = header.size();
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    return load_bytes(bytes + header + data);
  }
  TensorFile load_bytes(const std::string& bytes) const {
    write_bytes(path_, bytes);
    return load_tensors(path_);
  }
  testing::AssertionResult is_refused(const char* reason, const std::string& header, const std::string& data) const {
    return fails_with<DataError>({reason}, [&] { load(header, data); });
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.file("t");
};

TEST_F(Foreign, IsReadInTheOrderOfTheData) {
  const TensorFile file =
      load(R"({ "late":{"shape":[1,2],"data_offsets":[4,6],"dtype":"U8"}, "__metadata__":{"format":"pt"},)"
           R"("first":{"dtype":"I32","shape":[],"data_offsets":[0,4]} }   )",
           std::string("\x05\0\0\0\x01\x02", 6));
  ASSERT_EQ(file.tensors.size(), 2U);
  EXPECT_EQ(file.tensors[0].first, "first");
  EXPECT_EQ(file.tensors[0].second.item(), 5);
  EXPECT_EQ(file.tensors[1].second.to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{1, 2}));
  EXPECT_EQ(file.metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
}

TEST_F(Foreign, ThatBreaksARuleIsRefusedWithTheReason) {
  struct Case {
    const char* header;
    const char* reason;
  };
  const std::string data = "12345678";
  for (
      const Case& each : std::initializer_list<Case>{
          {"", "begin with '{'"},
          {" {}", "begin with '{'"},
          {"[]", "begin with '{'"},
          {"\xef\xbb\xbf{}", "begin with '{'"},
          {"{", "not valid JSON"},
          {"{} x", "not valid JSON"},
          {R"({"a\xff":1})", "not valid JSON"},
          {"{\"\xff\":{}}", "not valid JSON"},
          {"{}", "expected 0 bytes of data"},
          {R"({"a":1})", "no dtype"},
          {R"({"a":{"dtype":"U8","shape":[8]}})", "no list 'data_offsets'"},
          {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8],"more":1}})", "an unknown key 'more' for 'a'"},
          {R"({"a":{"dtype":8,"shape":[8],"data_offsets":[0,8]}})", "no dtype"},
          {R"({"a":{"dtype":"BF16","shape":[5],"data_offsets":[0,8]}})", "not the size of BF16[5]"},
          {R"({"a":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}})",
           "tensor 'a' has the dtype F8_E4M3: expected"},
          {R"({"a":{"dtype":"F4","shape":[15],"data_offsets":[0,8]}})", "not the size of F4[15]"},
          {R"({"a":{"dtype":"F128","shape":[8],"data_offsets":[0,8]}})", "tensor 'a' has the dtype F128: expected"},
          {R"({"a":{"dtype":"U8","shape":8,"data_offsets":[0,8]}})", "no list 'shape'"},
          {R"({"a":{"dtype":"U8","shape":[8],"offsets":[0,8]}})", "an unknown key 'offsets' for 'a'"},
          {R"({"a":{"dtype":"U8","shape":[8.0],"data_offsets":[0,8]}})", "is not a whole number"},
          {R"({"a":{"dtype":"U8","shape":[-8],"data_offsets":[0,8]}})", "is not a whole number"},
          {R"({"a":{"dtype":"U8","shape":["8"],"data_offsets":[0,8]}})", "is not a whole number"},
          {R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,8]}})", "is not a whole number"},
          {R"({"a":{"dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,8]}})", "is not a whole number"},
          {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8,8]}})", "expected 2, got 3"},
          {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[8,0]}})", "not the size"},
          {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[-8,0]}})", "is not a whole number"},
          {R"({"a":{"dtype":"U8","shape":[7],"data_offsets":[0,8]}})", "not the size"},
          {R"({"a":{"dtype":"F32","shape":[8],"data_offsets":[0,8]}})", "not the size"},
          {R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})", "expected 9 bytes of data"},
          {R"({"a":{"dtype":"U8","shape":[7],"data_offsets":[1,8]}})", "expected byte 0 of the data, got 1"},
          {R"({"a":{"dtype":"U8","shape":[7],"data_offsets":[0,7]}})", "expected 7 bytes of data"},
          {R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,8],"data_offsets":[0,8]}})", "expected at most 6, got 7"},
          {R"({"a":{"dtype":"F64","shape":[4294967296,4294967297],"data_offsets":[0,8]}})", "exceeds any memory"},
          {R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", "exceeds any memory"},
          {R"({"a":{"dtype":"U8","shape":[0,9223372036854775807,9],"data_offsets":[0,0]}})", "exceeds any memory"},
          {R"({"a":{"dtype":"U8","shape":[0,288230376151711745],"data_offsets":[0,0]}})", "exceeds any memory"},
          {R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
           "'b': expected byte 5 of the data, got 4"},
          {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[3],"data_offsets":[5,8]}})",
           "'b': expected byte 4 of the data, got 5"},
          {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
           "'a' twice"},
          {R"({"a":{"dtype":"U8","dtype":"U8","shape":[8],"data_offsets":[0,8]}})", "'dtype' twice"},
          {R"({"__metadata__":{},"__metadata__":{}})", "'__metadata__' twice"},
          {R"({"__metadata__":[]})", "metadata that is not an object"},
          {R"({"__metadata__":{"a":1}})", "'a' that is not a string"},
          {R"({"a":[[[[[[[[1]]]]]]]]})", "nested too deeply"},
          {R"({"__metadata__":{"stagecoach_crc32":""}})", "expected 0 bytes of data"},
      }) {
    EXPECT_TRUE(is_refused(each.reason, each.header, data)) << each.header;
  }
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

TEST_F(Foreign, TypesThatNoTensorHasAreConverted) {
  const auto loaded = [&](const std::string& type, std::size_t count, const std::string& data) {
    const std::string header =
        fmt::format(R"({{"a":{{"dtype":"{}","shape":[{}],"data_offsets":[0,{}]}}}})", type, count, data.size());
    return load(header, data).tensors.at(0).second;
  };
  using Bits = std::vector<std::uint16_t>;
  EXPECT_EQ(loaded("BF16", 4, bytes_of(Bits{0x3f80, 0xc049, 0x0001, 0xff80})).to_vector<float>(),
            (std::vector<float>{1, -3.140625F, 0x1p-133F, -std::numeric_limits<float>::infinity()}));
  const std::vector<std::int32_t> extremes{std::numeric_limits<std::int32_t>::min(), -1, 7, 2147483647};
  EXPECT_EQ(
      loaded("I64", 4, bytes_of(std::vector<std::int64_t>(extremes.begin(), extremes.end()))).to_vector<std::int32_t>(),
      extremes);
  using Ints = std::vector<std::int32_t>;
  EXPECT_EQ(loaded("U64", 2, bytes_of(std::vector<std::uint64_t>{0, 2147483647})).to_vector<std::int32_t>(),
            (Ints{0, 2147483647}));
  EXPECT_EQ(loaded("U32", 1, bytes_of(std::vector<std::uint32_t>{9})).to_vector<std::int32_t>(), Ints{9});
  EXPECT_EQ(loaded("I16", 1, bytes_of(std::vector<std::int16_t>{-9})).to_vector<std::int32_t>(), Ints{-9});
  EXPECT_EQ(loaded("U16", 1, bytes_of(std::vector<std::uint16_t>{65535})).to_vector<std::int32_t>(), Ints{65535});
  EXPECT_EQ(loaded("I8", 2, "\xff\x05").to_vector<std::int32_t>(), (Ints{-1, 5}));
  EXPECT_EQ(loaded("BOOL", 2, std::string("\x00\x01", 2)).to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{0, 1}));
  const std::size_t many = (1 << 20) + 3;  // more than one piece
  EXPECT_EQ(loaded("BF16", many, bytes_of(Bits(many, 0x4000))).to_vector<float>(), std::vector<float>(many, 2));
}

TEST_F(Foreign, ValuesThatDoNotFitAreRefused) {
  const auto header = [](const char* type) {
    return fmt::format(R"({{"n":{{"dtype":"{}","shape":[],"data_offsets":[0,8]}}}})", type);
  };
  EXPECT_TRUE(is_refused("tensor 'n' has the value 2147483648: expected -2^31 to 2^31 - 1", header("I64"),
                         bytes_of(std::vector<std::int64_t>{2147483648})));
  EXPECT_TRUE(is_refused("the value 18446744073709551615", header("U64"), std::string(8, '\xff')));
  EXPECT_TRUE(is_refused("a boolean with the byte 2: expected 0 or 1",
                         R"({"n":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", "\x01\x02"));
}

TEST_F(Foreign, WhatIsNotKeptMayHaveAnyType) {
  for (const char* other : {R"("dtype":"F8_E4M3","shape":[8])", R"("dtype":"F4","shape":[16])",
                            R"("dtype":"C64","shape":[])", R"("dtype":"of tomorrow","shape":[3])",
                            R"("dtype":"I64","shape":[1,1,1,1,1,1,1])", R"("dtype":"I64","shape":[])"}) {
    const std::string header = fmt::format(
        R"({{"other":{{{},"data_offsets":[0,8]}},"kept":{{"dtype":"U8","shape":[2],"data_offsets":[8,10]}}}})", other);
    const std::string bytes = std::string(8, '\x7f') + "\x03\x04";
    write_bytes(path_, bytes_of(std::vector<std::uint64_t>{header.size()}) + header + bytes);
    const TensorFile file = load_tensors(path_, [](const std::string& name) { return name == "kept"; });
    ASSERT_EQ(file.tensors.size(), 1U) << other;
    EXPECT_EQ(file.tensors[0].second.to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{3, 4}));
    EXPECT_TRUE(fails_with<DataError>({"tensor 'other' has "}, [&] { load_tensors(path_); })) << other;
  }
}

TEST_F(Foreign, FilesOfOtherFormatsAreCalledWhatTheyAre) {
  const auto refused = [&](const std::string& bytes, const char* name, const char* advice) {
    return fails_with<DataError>({"expected safetensors, but it is ", name, advice}, [&] { load_bytes(bytes); });
  };
  const std::string rest(40, '\x01');
  EXPECT_TRUE(refused("PK\x03\x04" + rest, "a zip archive, as torch.save", "safetensors.torch.save_file"));
  EXPECT_TRUE(
      refused("\x80\x02\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19." + rest, "a Python pickle, as torch.save", "load it"));
  EXPECT_TRUE(
      refused(std::string("\x80\x04\x95\x1c\0\0\0\0\0\0\0}", 12) + rest, "a Python pickle", "load it in Python"));
  EXPECT_TRUE(refused(std::string("\x89HDF\r\n\x1a\n\0", 9) + rest, "an HDF5 file", "load it in Python"));
  EXPECT_TRUE(refused("\x93NUMPY" + rest, "a NumPy array", "load it in Python"));
  EXPECT_TRUE(refused("\x1f\x8b\x08" + rest, "compressed with gzip", "gunzip"));
  EXPECT_TRUE(refused("version https://git-lfs.github.com/spec/v1\noid sha256:", "a Git LFS pointer", "git lfs pull"));
  EXPECT_TRUE(refused("<!DOCTYPE html><html>", "a web page", "download"));
  EXPECT_TRUE(refused("{\n  \"metadata\": {\"total_size\": 1}}", "a JSON text", "the safetensors that it names"));
  // The length of the header, 640, begins as a pickle does.
  std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  header.resize(0x280, ' ');
  EXPECT_EQ(load(header, "1").tensors.size(), 1U);
}

TEST_F(Foreign, NothingButSpaceMayFollowTheHeadersEnd) {
  const std::string header = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
  EXPECT_EQ(load(header + " \n\t ", "12").tensors.size(), 1U);
  for (const std::string& rest : {std::string(1, '\0'), std::string("\0 anything } at all", 19), std::string("{}")}) {
    EXPECT_TRUE(is_refused("the header is not valid JSON (line 1, column ", header + rest, "12")) << rest;
  }
}

TEST_F(Foreign, WithAPartOfOurMarksIsADamagedFileOfOurs) {
  EXPECT_TRUE(is_refused("damaged", R"({"__metadata__":{"stagecoach_crc32":""}})", ""));
  EXPECT_TRUE(is_refused("damaged", R"({"__metadata__":{"stagecoach_crc32":"00000000"}})", ""));
  EXPECT_TRUE(is_refused("damaged", R"({"__metadata__":{"stagecoach_producer":"stagecoach"}})", ""));
  EXPECT_TRUE(is_refused("expected checksum 00000000",
                         R"({"__metadata__":{"stagecoach_crc32":"00000000","stagecoach_producer":"stagecoach"}})", ""));
}

TEST_F(Foreign, LengthsBeyondTheFileAreRefused) {
  for (const char* bytes : {"\x03\0\0\0\0\0\0\0{}", "\0\0\0\0\0\0\0\x80{}", "\xff\xff\xff\xff\xff\xff\xff\xff{}"}) {
    EXPECT_TRUE(fails_with<DataError>({"the header is too long"}, [&] { load_bytes(std::string(bytes, 10)); }));
  }
  EXPECT_TRUE(load_bytes(std::string("\x02\0\0\0\0\0\0\0{}", 10)).tensors.empty());
}

TEST_F(Foreign, RandomChangesNeverCrashTheReader) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})";
  const std::string alphabet = R"({}[]",:0123456789 \-.eE)";
  int loaded = 0;
  for (std::uint64_t round = 0; round < 4000; ++round) {
    const Philox random(round, "fuzz");
    std::string text = header;
    for (std::uint32_t change = 0; change <= random.below(0, 4); ++change) {
      const auto at = random.below(3 * change + 1, static_cast<std::uint32_t>(text.size()));
      const char symbol = alphabet[random.below(3 * change + 2, static_cast<std::uint32_t>(alphabet.size()))];
      switch (random.below(3 * change + 3, 3)) {
        case 0:
          text[at] = symbol;
          break;
        case 1:
          text.insert(at, 1, symbol);
          break;
        default:
          text.erase(at, 1);
      }
    }
    try {
      load(text, "12345678901");
      ++loaded;  // a change in a name or in the metadata
    } catch (const DataError&) {
    }
  }
  EXPECT_GT(loaded, 0);
  EXPECT_LT(loaded, 2000);
}

}  // namespace
}  // namespace stagecoach
