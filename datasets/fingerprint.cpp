#include "datasets/fingerprint.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstddef>

#include "core/base/phrases.h"
#include "core/base/printable.h"

namespace stagecoach {
namespace {

using Texts = std::vector<std::string>;

std::uint32_t crc32_after(std::uint32_t before, const void* data, std::size_t bytes) {
  return static_cast<std::uint32_t>(::crc32_z(before, static_cast<const Bytef*>(data), static_cast<z_size_t>(bytes)));
}

std::uint32_t crc32_after(std::uint32_t before, const Tensor& tensor) {
  return crc32_after(before, tensor.raw_data(), tensor.bytes());
}

Fingerprint::Part part_of(const Dataset& data) {
  Fingerprint::Part part{.counts = std::vector<std::int64_t>(data.classes.size())};
  if (data.size() == 0) {
    return part;
  }
  for (const std::int32_t label : data.labels.to_vector<std::int32_t>()) {
    ++part.counts.at(static_cast<std::size_t>(label));
  }
  const std::string extents = fmt::format("{} {} {}", data.images.size(1), data.images.size(2), data.images.size(3));
  part.digest = crc32_after(crc32_after(crc32_after(0, extents.data(), extents.size()), data.images), data.labels);
  return part;
}

/// Returns the names in `a` that are not in `b`, each followed by `what`.
Texts only_in(const Texts& a, const Texts& b, const char* what) {
  Texts texts;
  for (const std::string& name : a) {
    if (std::find(b.begin(), b.end(), name) == b.end()) {
      texts.push_back(fmt::format("'{}' {}", name, what));
    }
  }
  return texts;
}

Texts class_differences(const Texts& before, const Texts& now) {
  Texts texts;
  if (before.size() != now.size()) {
    Texts changes = only_in(before, now, "is missing");
    const Texts added = only_in(now, before, "is new");
    changes.insert(changes.end(), added.begin(), added.end());
    return {fmt::format("the {} classes are now {} ({})", before.size(), now.size(), first_few(changes))};
  }
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (before[i] != now[i]) {
      texts.push_back(fmt::format("class {} was '{}' and is now '{}'", i, before[i], now[i]));
    }
  }
  return texts;
}

/// Both parts have the same classes.
Texts count_differences(const Texts& classes, const Fingerprint::Part& before, const Fingerprint::Part& now,
                        const char* kind) {
  Texts texts;
  for (std::size_t i = 0; i < std::min({classes.size(), before.counts.size(), now.counts.size()}); ++i) {
    if (before.counts[i] != now.counts[i]) {
      texts.push_back(
          fmt::format("'{}' had {} {} images and now has {}", classes[i], before.counts[i], kind, now.counts[i]));
    }
  }
  return texts;
}

}  // namespace

Fingerprint fingerprint_of(const TrainTest& data) {
  Fingerprint fingerprint{.train = part_of(data.train), .test = part_of(data.test)};
  for (const std::string& name : data.train.classes) {
    fingerprint.classes.push_back(printable(name));
  }
  return fingerprint;
}

std::uint32_t names_digest(const Fingerprint& fingerprint) {
  std::uint32_t digest = 0;
  for (const std::string& name : fingerprint.classes) {
    digest = crc32_after(digest, name.c_str(), name.size() + 1);  // with the NUL byte: 'a', 'bc' is not 'ab', 'c'
  }
  return digest;
}

std::string difference(const Fingerprint& before, const Fingerprint& now) {
  if (const Texts texts = class_differences(before.classes, now.classes); !texts.empty()) {
    return first_few(texts);
  }
  Texts texts = count_differences(now.classes, before.train, now.train, "training");
  const Texts test_texts = count_differences(now.classes, before.test, now.test, "test");
  texts.insert(texts.end(), test_texts.begin(), test_texts.end());
  if (!texts.empty()) {
    return first_few(texts);
  }
  if (before == now) {
    return "";
  }
  return fmt::format(
      "the classes and their numbers of images are the same, but {} images, their labels or their order "
      "changed",
      before.test == now.test     ? "training"
      : before.train == now.train ? "test"
                                  : "training and test");
}

}  // namespace stagecoach
