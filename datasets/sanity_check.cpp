#include "datasets/sanity_check.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "core/base/phrases.h"

namespace stagecoach {
namespace {

/// The images of both splits, those of the test after those of the training.
class Images {
 public:
  Images(const Dataset& train, const Dataset& test)
      : train_(train.inputs.data<std::uint8_t>()),
        test_(test.inputs.data<std::uint8_t>()),
        train_size_(train.size()),
        size_(train.size() + test.size()),
        bytes_(train.inputs.numel() / train.size()) {}

  std::int64_t size() const { return size_; }
  std::size_t bytes() const { return static_cast<std::size_t>(bytes_); }
  bool is_test(std::int64_t i) const { return i >= train_size_; }
  const std::uint8_t* at(std::int64_t i) const {
    return is_test(i) ? test_ + (i - train_size_) * bytes_ : train_ + i * bytes_;
  }
  int compare(std::int64_t a, std::int64_t b) const { return std::memcmp(at(a), at(b), bytes()); }

 private:
  const std::uint8_t* train_;  // [train_size, bytes]
  const std::uint8_t* test_;   // [size - train_size, bytes]
  std::int64_t train_size_;
  std::int64_t size_;
  std::int64_t bytes_;
};

/// Returns a hash of 16 bytes in the middle of image i, less than `range`, which is a power of two.
std::size_t sample_hash(const Images& images, std::int64_t i, std::size_t range) {
  std::array<std::uint64_t, 2> words = {};
  if (images.bytes() >= sizeof(words)) {
    std::memcpy(words.data(), images.at(i) + (images.bytes() - sizeof(words)) / 2, sizeof(words));
  } else {
    std::memcpy(words.data(), images.at(i), images.bytes());
  }
  const std::uint64_t hash = (words[0] * 0x9e3779b97f4a7c15 ^ words[1]) * 0x9e3779b97f4a7c15;
  return static_cast<std::size_t>(hash >> 32) & (range - 1);
}

/// Returns the images whose hash another image has too: all images that have copies, and few others.
std::vector<std::int64_t> candidates(const Images& images) {
  constexpr std::size_t kSparse = 64;  // so many hashes per image that only 1 in 64 images shares its hash by chance
  const std::size_t range = std::bit_ceil(kSparse * static_cast<std::size_t>(images.size()));
  std::vector<bool> once(range);
  std::vector<bool> twice(range);
  std::vector<std::size_t> hashes;
  hashes.reserve(static_cast<std::size_t>(images.size()));
  for (std::int64_t i = 0; i < images.size(); ++i) {
    const std::size_t hash = hashes.emplace_back(sample_hash(images, i, range));
    (once[hash] ? twice : once)[hash] = true;
  }
  std::vector<std::int64_t> found;
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    if (twice[hashes[i]]) {
      found.push_back(static_cast<std::int64_t>(i));
    }
  }
  return found;
}

/// Returns the candidates in an order in which equal images are adjacent, the first of them first.
std::vector<std::int64_t> sorted_candidates(const Images& images) {
  std::vector<std::int64_t> found = candidates(images);
  std::sort(found.begin(), found.end(), [&](std::int64_t a, std::int64_t b) {
    const int order = images.compare(a, b);
    return order != 0 ? order < 0 : a < b;
  });
  return found;
}

/// The images that are equal to an earlier one of the training.
struct Copies {
  std::int64_t count = 0;
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  std::int64_t original = 0;          ///< of the first
  std::int64_t with_other_label = 0;  ///< than the original
};

struct AllCopies {
  Copies train;
  Copies test;
};

AllCopies find_copies(const Images& images, const Dataset& train) {
  const std::vector<std::int64_t> all = sorted_candidates(images);
  const auto* labels = train.targets.data<std::int32_t>();
  AllCopies found;
  for (std::size_t i = 1, group = 0; i < all.size(); ++i) {  // `group` is where the images that equal all[i] begin
    const std::int64_t image = all[i];
    const std::int64_t original = all[group];
    if (images.compare(image, original) != 0) {
      group = i;
    } else if (!images.is_test(original)) {
      Copies& copies = images.is_test(image) ? found.test : found.train;
      ++copies.count;
      copies.with_other_label += images.is_test(image) || labels[image] == labels[original] ? 0 : 1;
      if (image < copies.first) {
        copies.first = image;
        copies.original = original;
      }
    }
  }
  return found;
}

/// Returns the names of classes without images in `data`, in quotes.
std::vector<std::string> missing_classes(const Dataset& data) {
  std::vector<bool> seen(data.classes.size());
  for (const std::int32_t label : data.targets.to_vector<std::int32_t>()) {
    seen.at(static_cast<std::size_t>(label)) = true;
  }
  std::vector<std::string> names;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    if (!seen[i]) {
      names.push_back(fmt::format("'{}'", data.classes[i]));
    }
  }
  return names;
}

}  // namespace

std::vector<std::string> sanity_check(const Dataset& train, const Dataset& test, const ImageName& name) {
  const AllCopies copies = find_copies(Images(train, test), train);
  const auto first = [&](const Copies& some) {
    return fmt::format("first: {} = {}", name(some.first), name(some.original));
  };
  std::vector<std::string> notes;
  if (train.classes.size() == 1) {
    notes.push_back(fmt::format("'{}' is the only class, so every prediction is right", train.classes[0]));
  }
  if (copies.train.count > 0) {
    notes.push_back(fmt::format("training images that are copies of others: {} of {} ({} with another label); {}",
                                copies.train.count, train.size(), copies.train.with_other_label, first(copies.train)));
  }
  if (copies.test.count > 0) {
    notes.push_back(fmt::format("test images that are also training images: {} of {}, {}; {}", copies.test.count,
                                test.size(),
                                copies.test.count < test.size() ? "which makes the test accuracy too good"
                                                                : "so the test accuracy says nothing about new images",
                                first(copies.test)));
  }
  for (const auto& [data, kind] : {std::pair(&train, "training"), std::pair(&test, "test")}) {
    if (const auto missing = missing_classes(*data); !missing.empty()) {
      notes.push_back(fmt::format("{} without {} images: {}",
                                  missing.size() == 1 ? "a class" : counted(std::ssize(missing), "class"), kind,
                                  first_few(missing)));
    }
  }
  return notes;
}

}  // namespace stagecoach
