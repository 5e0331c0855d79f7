#include "datasets/fingerprint.h"

#include <fmt/format.h>
#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <sstream>
#include <utility>
#include <vector>

#include "core/printable.h"
#include "core/throw_if.h"

namespace stagecoach {
namespace {

struct Part {
  std::string count;  // of images
  std::string digest;
  std::string name;  // of the class
};

struct Split {
  std::string count;
  std::string digest;  // of the labels
  std::vector<Part> classes;
};

std::uint32_t add(std::uint32_t digest, const void* bytes, std::size_t count) {
  return static_cast<std::uint32_t>(::crc32_z(digest, static_cast<const Bytef*>(bytes), count));
}

std::string lines_of(const char* name, const Dataset& data) {
  std::vector<std::int64_t> counts(data.classes.size());
  std::vector<std::uint32_t> digests(data.classes.size());
  std::uint32_t order = 0;
  if (data.size() > 0) {
    const auto* labels = data.labels.data<std::int32_t>();  // [N]
    const auto* images = data.images.data<std::uint8_t>();  // [N, 3, H, W]
    const auto bytes = static_cast<std::size_t>(data.images.numel() / data.size());
    order = add(order, labels, static_cast<std::size_t>(data.size()) * sizeof(*labels));
    for (std::int64_t i = 0; i < data.size(); ++i) {
      const auto label = static_cast<std::size_t>(labels[i]);
      ++counts.at(label);
      digests.at(label) = add(digests.at(label), images + static_cast<std::size_t>(i) * bytes, bytes);
    }
  }
  std::string text = fmt::format("{} {} {:08x}\n", name, data.size(), order);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    text += fmt::format("{} {:08x} {}\n", counts[i], digests[i], printable(data.classes[i]));
  }
  return text;
}

/// Reads the lines of split `name`, and those of its classes up to the next split. Throws DataError if there are none.
Split read_split(std::istringstream& text, const std::string& name) {
  Split split;
  std::string word;
  text >> word >> split.count >> split.digest >> std::ws;
  throw_if<DataError>(!text || word != name, "the record of the data is damaged: expected '{}', got '{}'", name,
                      printable(word));
  while (text && text.peek() >= '0' && text.peek() <= '9') {
    Part part;
    text >> part.count >> part.digest;
    text.ignore(1);
    std::getline(text, part.name);
    split.classes.push_back(part);
  }
  return split;
}

/// Returns the first difference between the classes of a split: in names, then in numbers of images, then in images.
std::string class_difference(const std::string& where, const std::vector<Part>& before, const std::vector<Part>& now) {
  if (before.size() != now.size()) {
    return fmt::format("the {} had {} classes and has {}", where, before.size(), now.size());
  }
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (before[i].name != now[i].name) {
      return fmt::format("class {} of the {} was '{}' and is '{}'", i, where, before[i].name, now[i].name);
    }
  }
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (before[i].count != now[i].count) {
      return fmt::format("class '{}' of the {} had {} images and has {}", now[i].name, where, before[i].count,
                         now[i].count);
    }
  }
  std::vector<std::string> changed;
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (before[i].digest != now[i].digest) {
      changed.push_back("'" + now[i].name + "'");
    }
  }
  return changed.empty()
             ? ""
             : fmt::format("the {} has the same {} classes and numbers of images, but other images of {}{}", where,
                           now.size(), changed.front(),
                           changed.size() > 1 ? fmt::format(" and {} more classes", changed.size() - 1) : "");
}

std::string split_difference(const std::string& where, const Split& before, const Split& now) {
  if (const std::string difference = class_difference(where, before.classes, now.classes); !difference.empty()) {
    return difference;
  }
  return before.count == now.count && before.digest == now.digest
             ? ""
             : fmt::format("the {} has the same images of each class in another order", where);
}

}  // namespace

std::string fingerprint(const TrainTest& data) { return lines_of("train", data.train) + lines_of("test", data.test); }

std::string data_difference(const std::string& before, const std::string& now) {
  if (before == now) {
    return "";
  }
  std::istringstream old_lines(before);
  std::istringstream new_lines(now);
  for (const auto& [name, where] : {std::pair("train", "training set"), {"test", "test set"}}) {
    const Split old_split = read_split(old_lines, name);
    const Split new_split = read_split(new_lines, name);
    if (const std::string difference = split_difference(where, old_split, new_split); !difference.empty()) {
      return difference;
    }
  }
  return "the record of the data is damaged";
}

}  // namespace stagecoach
