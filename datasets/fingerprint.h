#pragma once
/// @file
/// What identifies a data set: a checkpoint stores it, so that a run is not continued with other data unnoticed.

#include <cstdint>
#include <string>
#include <vector>

#include "datasets/dataset.h"

namespace stagecoach {

struct Fingerprint {
  struct Part {
    std::vector<std::int64_t> counts = {};  ///< samples of each class; empty unless the targets are labels
    std::uint32_t digest = 0;               ///< of the records, in their order

    bool operator==(const Part&) const = default;
  };
  std::vector<std::string> classes = {};  ///< their names as they are printed
  Part train = {};
  Part test = {};

  bool operator==(const Fingerprint&) const = default;
};

/// Returns the fingerprint of `data`. A digest is the CRC-32 (as in zlib) of the extents of an input, of all inputs and
/// of all targets: it does not depend on the folder, and reads 184 MB in about 0.06 s on one core. Of data larger than
/// 1 GiB, evenly spaced samples of at most 1 GiB are read.
Fingerprint fingerprint_of(const TrainTest& data);

/// Returns the CRC-32 of the names of the classes, in their order.
std::uint32_t names_digest(const Fingerprint& fingerprint);

/// Returns how `now` differs from `before`: "class 3 was 'cat' and is now 'dog'"; empty if they are equal. Only the
/// first few differences are listed.
std::string difference(const Fingerprint& before, const Fingerprint& now);

}  // namespace stagecoach
