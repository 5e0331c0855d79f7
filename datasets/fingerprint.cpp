#include "datasets/fingerprint.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstddef>

#include "core/base/phrases.h"
#include "core/base/printable.h"
#include "core/uncounted_memory.h"

namespace stagecoach {
namespace {

constexpr double kMaxDigested = 1 << 30;  // bytes

using Texts = std::vector<std::string>;

std::uint32_t crc32_after(std::uint32_t before, const void* data, std::size_t bytes) {
  return static_cast<std::uint32_t>(::crc32_z(before, static_cast<const Bytef*>(data), static_cast<z_size_t>(bytes)));
}

std::uint32_t crc32_after(std::uint32_t before, const Tensor& tensor) {
  return crc32_after(before, tensor.raw_data(), tensor.bytes());
}

Fingerprint::Part part_of(const Dataset& data) {
  if (data.size() == 0) {
    return {.counts = std::vector<std::int64_t>(data.classes.size())};
  }
  const auto samples = samples_of(data);
  const UncountedMemory scratch;
  Tensor input = Tensor::empty(samples->input().shape, samples->input().dtype);
  Tensor target = Tensor::empty(samples->target().shape, samples->target().dtype);
  const bool are_labels = samples->target() == SampleType{{}, DType::int32};
  Fingerprint::Part part{.counts = std::vector<std::int64_t>(are_labels ? data.classes.size() : 0)};
  const auto bytes = static_cast<double>(input.bytes() + target.bytes());
  const auto stride = 1 + static_cast<std::int64_t>(static_cast<double>(data.size()) * bytes / kMaxDigested);
  const std::string extents = fmt::format("{}", fmt::join(input.shape(), " ")) +
                              (stride > 1 ? fmt::format(" of {}", data.size()) : std::string());
  part.digest = crc32_after(0, extents.data(), extents.size());
  std::uint32_t target_digest = 0;
  std::int64_t read = 0;
  for (std::int64_t i = 0; i < data.size(); i += stride, ++read) {
    samples->read(i, input, target);
    part.digest = crc32_after(part.digest, input);
    target_digest = crc32_after(target_digest, target);
    if (are_labels && !part.counts.empty()) {
      ++part.counts.at(static_cast<std::size_t>(*target.data<std::int32_t>()));
    }
  }
  part.digest = static_cast<std::uint32_t>(::crc32_combine(
      part.digest, target_digest, static_cast<z_off_t>(read * static_cast<std::int64_t>(target.bytes()))));
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
