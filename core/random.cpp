#include "core/random.h"

#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

namespace stagecoach {
namespace {

/// Returns the FNV-1a hash of `name`, the same on every machine.
std::uint64_t hash(std::string_view name) {
  std::uint64_t value = 0xcbf29ce484222325;
  for (const char c : name) {
    value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return value;
}

/// Returns the SplitMix64 finalizer of `value`: similar seeds become unrelated keys.
std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

}  // namespace

Philox::Philox(std::uint64_t seed, std::string_view name) : key_(mix(seed + 0x9e3779b97f4a7c15) ^ mix(hash(name))) {}

std::uint32_t Philox::word(std::uint64_t index) const { return block(index / 4)[index % 4]; }

double Philox::normal(std::uint64_t index) const {
  const Block words = block(index, 1);  // high counter 1: disjoint from the words of `uniform`
  const double radius = std::sqrt(-2 * std::log((words[0] + 1.0) * 0x1p-32));
  return radius * std::cos(2 * std::numbers::pi * (words[1] * 0x1p-32));
}

std::uint32_t Philox::below(std::uint64_t index, std::uint32_t bound) const {
  // 64 random bits times the bound, shifted down: the bias is below bound / 2^64.
  const Block words = block(index, 2);
  const std::uint64_t bits = words[0] | static_cast<std::uint64_t>(words[1]) << 32;
  return static_cast<std::uint32_t>((static_cast<unsigned __int128>(bits) * bound) >> 64);
}

std::vector<std::uint32_t> Philox::permutation(std::uint32_t count) const {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  for (std::uint32_t i = count; i > 1; --i) {
    std::swap(order[i - 1], order[below(i, i)]);
  }
  return order;
}

}  // namespace stagecoach
