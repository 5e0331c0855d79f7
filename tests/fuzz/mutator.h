#pragma once
/// @file
/// Makes inputs out of a few good ones. Input number i depends on the corpus, the words, the seed and i alone, so a
/// find is named by its number.

#include <cstdint>
#include <string>
#include <vector>

namespace stagecoach::fuzz {

class Mutator {
 public:
  static constexpr std::size_t kMaxBytes = 1 << 16;  ///< of a mutated input

  /// `words` are what the format is made of, such as keys of its JSON. Throws Error without a corpus.
  Mutator(std::vector<std::string> corpus, std::vector<std::string> words, std::uint64_t seed);

  /// How many of the first inputs are those of the corpus, unchanged.
  std::uint64_t corpus_size() const { return corpus_.size(); }
  std::string input(std::uint64_t index) const;

 private:
  std::vector<std::string> corpus_;
  std::vector<std::string> words_;
  std::uint64_t seed_;
};

/// The words of a dictionary in libFuzzer's form: one "word" or name="word" per line, with \\, \" and \xAB inside;
/// lines that begin with # are comments. Throws DataError that names `where` and the line.
std::vector<std::string> words_from_text(const std::string& text, const std::string& where);

}  // namespace stagecoach::fuzz
