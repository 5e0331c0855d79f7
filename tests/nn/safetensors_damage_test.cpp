/// @file
/// Every truncation, extension and flipped bit of a file that we wrote is found. No damage may crash the reader,
/// make it allocate wildly (the sanitizers watch), or pass.

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "nn/safetensors.h"
#include "tests/support/files.h"

namespace stagecoach {
namespace {

using test::read_bytes;
using test::TemporaryFolder;
using test::write_bytes;

class Damage : public testing::Test {
 protected:
  /// Small files that between them hold each thing that a header can.
  static std::vector<TensorFile> files() {
    const Tensor bytes = Tensor::from<std::uint8_t>({1, 2, 3}, {3});
    return {
        {},
        {{{"a", Tensor::from<float>({1, 2}, {2})}, {"b.weight", bytes}}, {}},
        {{{"XTL|^]\\\"", Tensor::from<double>({0.5}, {})}, {"é", Tensor::empty({0, 3}, DType::int32)}},
         {{"path", "C:\\dir\\"}, {"producer", "T"}, {"quote", "\"\n\x01"}}},
    };
  }

  std::string saved(const TensorFile& file) const {
    save_tensors(path_, file);
    return read_bytes(path_);
  }

  /// True when reading `bytes` as a file throws DataError; any other outcome but success ends the test.
  bool is_refused(const std::string& bytes) const {
    write_bytes(path_, bytes);
    try {
      load_tensors(path_);
    } catch (const DataError&) {
      return true;
    }
    return false;
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.file("t");
};

TEST_F(Damage, EveryTruncationIsFound) {
  for (const TensorFile& file : files()) {
    const std::string whole = saved(file);
    for (std::size_t length = 0; length < whole.size(); ++length) {
      EXPECT_TRUE(is_refused(whole.substr(0, length))) << "after " << length << " bytes of " << whole;
    }
  }
}

TEST_F(Damage, EveryExtensionIsFound) {
  for (const TensorFile& file : files()) {
    const std::string whole = saved(file);
    for (std::size_t extra = 1; extra < 20; ++extra) {
      EXPECT_TRUE(is_refused(whole + std::string(extra, ' '))) << extra;
      EXPECT_TRUE(is_refused(whole + std::string(extra, '\0'))) << extra;
    }
  }
}

TEST_F(Damage, EveryFlippedBitIsFound) {
  for (const TensorFile& file : files()) {
    const std::string whole = saved(file);
    for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
      std::string damaged = whole;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
      EXPECT_TRUE(is_refused(damaged)) << "bit " << bit % 8 << " of byte " << bit / 8 << " of " << whole;
    }
  }
}

TEST_F(Damage, AnyOtherByteIsFound) {
  const std::string whole = saved(files()[1]);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const int value : {0x00, 0x20, 0x22, 0x30, 0x39, 0x5c, 0x7b, 0x7d, 0xff}) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(value);
      EXPECT_EQ(is_refused(damaged), damaged != whole) << value << " as byte " << i;
    }
  }
}

}  // namespace
}  // namespace stagecoach
