#pragma once
/// @file
/// Counter-based random numbers: number i of a stream is a function of (seed, name, i) alone, so no result depends on
/// the order in which, or the rank on which, numbers are drawn.

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace stagecoach {

/// Philox4x32 with 10 rounds. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
class Philox {
 public:
  using Block = std::array<std::uint32_t, 4>;

  /// Creates the stream called `name` for `seed`.
  Philox(std::uint64_t seed, std::string_view name);
  /// Creates the bare generator with the 64-bit key (key[0] + 2^32 key[1]).
  constexpr explicit Philox(std::uint64_t key) : key_(key) {}

  /// Returns the four words at a 128-bit counter. GPUs run the same code.
  constexpr Block block(std::uint64_t low, std::uint64_t high = 0) const;
  /// Returns word `index` of the stream.
  std::uint32_t word(std::uint64_t index) const;
  /// Returns number `index`, uniform on [0, 1): a multiple of 2^-24, so that float and double represent the same value.
  double uniform(std::uint64_t index) const { return unit(word(index)); }
  /// Returns the number on [0, 1) that `uniform` makes of a word.
  static double unit(std::uint32_t word) { return (word >> 8) * 0x1p-24; }
  /// Returns number `index`, from the standard normal distribution (Box and Muller 1958).
  double normal(std::uint64_t index) const;
  /// Returns number `index`, uniform on 0 … bound-1.
  std::uint32_t below(std::uint64_t index, std::uint32_t bound) const;
  /// Returns 0 … count-1 in a random order (Fisher and Yates).
  std::vector<std::uint32_t> permutation(std::uint32_t count) const;

 private:
  std::uint64_t key_;
};

constexpr Philox::Block Philox::block(std::uint64_t low, std::uint64_t high) const {
  Block c{static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32), static_cast<std::uint32_t>(high),
          static_cast<std::uint32_t>(high >> 32)};
  auto k0 = static_cast<std::uint32_t>(key_);
  auto k1 = static_cast<std::uint32_t>(key_ >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = 0xD2511F53ULL * c[0];
    const std::uint64_t p1 = 0xCD9E8D57ULL * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

/// Reads the uniform numbers of a stream. In the order of their indices this is several times as fast as
/// Philox::uniform: four share a block, which is computed once.
class UniformNumbers {
 public:
  explicit UniformNumbers(const Philox& random) : random_(random), words_(random.block(0)) {}
  /// Returns number `index`: the value of Philox::uniform(index), whatever was read before.
  double operator[](std::uint64_t index) {
    if (index / 4 != block_) {
      block_ = index / 4;
      words_ = random_.block(block_);
    }
    return Philox::unit(words_[index % 4]);
  }

 private:
  Philox random_;
  std::uint64_t block_ = 0;
  Philox::Block words_;
};

}  // namespace stagecoach
