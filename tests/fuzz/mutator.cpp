#include "tests/fuzz/mutator.h"

#include <algorithm>
#include <iterator>
#include <sstream>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/random.h"

namespace stagecoach::fuzz {
namespace {

/// What numbers in a text are replaced with: the ends of types, and what is no whole number.
constexpr std::string_view kNumbers[] = {"0",
                                         "1",
                                         "-1",
                                         "2147483647",
                                         "2147483648",
                                         "-2147483648",
                                         "4294967295",
                                         "4294967296",
                                         "4294967298",
                                         "9223372036854775807",
                                         "9223372036854775808",
                                         "-9223372036854775808",
                                         "3e19",
                                         "1e300",
                                         "1e-400",
                                         "18446744073709551615",
                                         "18446744073709551616",
                                         "1e999",
                                         "32.9",
                                         "-0",
                                         "nan",
                                         "inf",
                                         "0x10",
                                         "1048577"};

/// What binary numbers are replaced with, cut to their width.
constexpr std::uint64_t kIntegers[] = {0,          1,          0x7f,       0x80,       0xff,        0x7fff,
                                       0x8000,     0xffff,     0x10000,    0xffffff,   1 << 20,     0x7fffffff,
                                       0x80000000, 0xffffffff, 1ULL << 32, 1ULL << 40, ~0ULL >> 1U, ~0ULL};

/// The random decisions about one input, in their order.
class Dice {
 public:
  Dice(std::uint64_t seed, std::uint64_t index) : numbers_(seed, "input " + std::to_string(index)) {}

  /// Uniform on 0 … bound - 1; 0 for a bound of 0.
  std::size_t below(std::size_t bound) {
    return bound == 0 ? 0 : numbers_.below(next_++, static_cast<std::uint32_t>(bound));
  }
  template <class List>
  const auto& one_of(const List& list) {
    return *(std::begin(list) + static_cast<std::ptrdiff_t>(below(std::size(list))));
  }
  char byte() { return static_cast<char>(below(256)); }
  /// Mostly short, now and then up to `bound`.
  std::size_t length(std::size_t bound) { return std::min(bound, 1 + below(below(4) == 0 ? bound : 8)); }

 private:
  Philox numbers_;
  std::uint64_t next_ = 0;
};

using Strings = std::vector<std::string>;
struct Ingredients {
  const Strings& corpus;
  const Strings& words;
};

/// Part of a text: where it begins, and how long it is.
struct Range {
  std::size_t begin;
  std::size_t size;
};
Range any_range(const std::string& text, Dice& dice) {
  const std::size_t begin = dice.below(text.size());
  return {begin, dice.length(text.size() - begin)};
}

void flip_bit(std::string& text, Dice& dice, const Ingredients&) {
  if (!text.empty()) {
    char& byte = text[dice.below(text.size())];
    byte = static_cast<char>(byte ^ (1 << dice.below(8)));
  }
}

void set_byte(std::string& text, Dice& dice, const Ingredients&) {
  if (!text.empty()) {
    text[dice.below(text.size())] = dice.byte();
  }
}

void insert_bytes(std::string& text, Dice& dice, const Ingredients&) {
  std::string bytes(dice.length(64), dice.byte());
  if (dice.below(2) == 0) {
    std::generate(bytes.begin(), bytes.end(), [&] { return dice.byte(); });
  }
  text.insert(dice.below(text.size() + 1), bytes);
}

void delete_range(std::string& text, Dice& dice, const Ingredients&) {
  const auto [begin, size] = any_range(text, dice);
  text.erase(begin, size);
}

void truncate(std::string& text, Dice& dice, const Ingredients&) { text.resize(dice.below(text.size() + 1)); }

void copy_range(std::string& text, Dice& dice, const Ingredients&) {
  const auto [begin, size] = any_range(text, dice);
  text.insert(dice.below(text.size() + 1), text.substr(begin, size));
}

void overwrite_range(std::string& text, Dice& dice, const Ingredients&) {
  const auto [begin, size] = any_range(text, dice);
  const std::string bytes = text.substr(begin, size);
  const std::size_t to = dice.below(text.size() + 1);
  text.replace(to, std::min(size, text.size() - to), bytes);
}

void repeat_range(std::string& text, Dice& dice, const Ingredients&) {
  const auto [begin, size] = any_range(text, dice);
  const std::string bytes = text.substr(begin, size);
  const std::size_t most = bytes.empty() ? 0 : 4096 / bytes.size();
  std::string all;
  for (std::size_t count = dice.below(most + 1); count > 0; --count) {
    all += bytes;
  }
  text.insert(begin, all);
}

/// The beginning of this input and the end of another.
void splice(std::string& text, Dice& dice, const Ingredients& from) {
  const std::string& other = dice.one_of(from.corpus);
  text.resize(dice.below(text.size() + 1));
  text += other.substr(dice.below(other.size() + 1));
}

/// Replaces one of the numbers that are written in digits.
void replace_number(std::string& text, Dice& dice, const Ingredients&) {
  constexpr const char* kDigits = "0123456789";
  const std::size_t begin = text.find_first_of(kDigits, dice.below(text.size()));
  if (begin != std::string::npos) {
    const std::size_t end = std::min(text.find_first_not_of(kDigits, begin), text.size());
    text.replace(begin, end - begin, dice.one_of(kNumbers));
  }
}

/// Overwrites 1, 2, 4 or 8 bytes with a number, in either byte order.
void set_integer(std::string& text, Dice& dice, const Ingredients&) {
  const std::size_t width = std::size_t{1} << dice.below(4);
  if (text.size() < width) {
    return;
  }
  std::uint64_t number = dice.one_of(kIntegers) + (dice.below(4) == 0 ? dice.below(64) : 0);
  std::string bytes;
  for (; bytes.size() < width; number >>= 8U) {
    bytes.push_back(static_cast<char>(number & 0xffU));
  }
  if (dice.below(2) == 0) {
    std::reverse(bytes.begin(), bytes.end());
  }
  text.replace(dice.below(text.size() - width + 1), width, bytes);
}

void insert_word(std::string& text, Dice& dice, const Ingredients& from) {
  if (!from.words.empty()) {
    text.insert(dice.below(text.size() + 1), dice.one_of(from.words));
  }
}

/// Puts a word in the place of another, where there is one.
void replace_word(std::string& text, Dice& dice, const Ingredients& from) {
  if (from.words.empty()) {
    return;
  }
  const std::string& old = dice.one_of(from.words);
  std::size_t at = text.find(old, dice.below(text.size()));
  at = at == std::string::npos ? text.find(old) : at;
  if (at != std::string::npos) {
    text.replace(at, old.size(), dice.one_of(from.words));
  }
}

using Mutation = void (*)(std::string& text, Dice& dice, const Ingredients& from);
constexpr Mutation kMutations[] = {flip_bit,       set_byte,    insert_bytes, delete_range,    truncate,
                                   copy_range,     splice,      repeat_range, overwrite_range, replace_number,
                                   replace_number, set_integer, insert_word,  replace_word};

std::string unquoted(std::string_view quoted) {
  std::string word;
  for (std::size_t i = 0; i < quoted.size(); ++i) {
    if (quoted[i] != '\\') {
      word += quoted[i];
    } else if (quoted.substr(i + 1, 1) == "x") {
      word += static_cast<char>(std::stoi(std::string(quoted.substr(i + 2, 2)), nullptr, 16));
      i += 3;
    } else {
      word += quoted.at(++i);
    }
  }
  return word;
}

}  // namespace

Mutator::Mutator(std::vector<std::string> corpus, std::vector<std::string> words, std::uint64_t seed)
    : corpus_(std::move(corpus)), words_(std::move(words)), seed_(seed) {
  STAGECOACH_CHECK(!corpus_.empty(), "fuzz: there is no input to begin with");
}

std::string Mutator::input(std::uint64_t index) const {
  if (index < corpus_.size()) {
    return corpus_[index];
  }
  Dice dice(seed_, index - corpus_.size());
  std::string text = dice.one_of(corpus_);
  for (std::size_t count = std::size_t{1} << dice.below(4); count > 0; --count) {
    dice.one_of(kMutations)(text, dice, {corpus_, words_});
    text.resize(std::min(text.size(), kMaxBytes));
  }
  return text;
}

std::vector<std::string> words_from_text(const std::string& text, const std::string& where) {
  std::vector<std::string> words;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (line.empty() || line.front() == '#') {
      continue;
    }
    const std::size_t begin = line.find('"');
    const std::size_t end = line.rfind('"');
    if (begin == end) {
      throw DataError(fmt::format("{}, line {}: expected a word in quotes, got {}", where, number, line));
    }
    words.push_back(unquoted(std::string_view(line).substr(begin + 1, end - begin - 1)));
  }
  return words;
}

}  // namespace stagecoach::fuzz
