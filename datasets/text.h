#pragma once
/// @file
/// Text as data: sequences of bytes, for a model that predicts the next byte.

#include <cstdint>
#include <string>

#include "datasets/dataset.h"

namespace stagecoach {

inline constexpr std::int64_t kByteValues = 256;  ///< classes of such a model

struct TextSettings {
  std::int64_t context = 64;   ///< bytes of a sequence
  std::int64_t max_bytes = 0;  ///< of the text; what follows is left out. 0: all
};

/// Returns whether `where` names text: "text:book" or "text:FILE".
bool is_text(const std::string& where);
/// Returns the texts of this project as they once were (datasets/text/book.txt), 330 kB. They are in the program.
const std::string& book();

/// Returns the sequences of a text: sample i has bytes i context … (i + 1) context - 1 as inputs, int32 [context], and
/// the byte after each as targets, int32 [context]. The last tenth of the text is for testing; what is left at the end
/// of a part is not used. "text:book" is book(), "text:FILE" a file of any bytes. Throws DataError for a file that
/// cannot be read, or has no sequence to train or to test with; UsageError for a context below 1.
TrainTest load_text(const std::string& where, const TextSettings& settings = {});

}  // namespace stagecoach
