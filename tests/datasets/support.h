#pragma once
/// @file
/// What several tests of datasets/ need: a folder of their own, files in it, and small datasets.

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "datasets/dataset.h"
#include "tests/support/files.h"

namespace stagecoach {

using test::TemporaryFolder;

inline void write_text_file(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  test::write_bytes(path, text);
}

inline std::string text_of_file(const std::filesystem::path& path) { return test::read_bytes(path); }

/// `size` images of `side` pixels; all bytes differ from image to image and from place to place. Label i % 10.
inline Dataset counting_dataset(std::int64_t size, std::int64_t side = 32) {
  Dataset dataset = make_dataset(size, side, {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"});
  auto* images = dataset.inputs.mutable_data<std::uint8_t>();
  for (std::int64_t i = 0; i < dataset.inputs.numel(); ++i) {
    images[i] = static_cast<std::uint8_t>((static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15) >> 56);
  }
  auto* labels = dataset.targets.mutable_data<std::int32_t>();
  for (std::int64_t i = 0; i < size; ++i) {
    labels[i] = static_cast<std::int32_t>(i % 10);
  }
  return dataset;
}

/// Runs `action`, which must throw a `Kind` whose text holds all of `parts`.
template <class Kind, class Action>
void expect_error(const Action& action, const std::vector<std::string>& parts) {
  try {
    action();
    ADD_FAILURE() << "no error was thrown";
  } catch (const Kind& error) {
    const std::string text = error.what();
    for (const std::string& part : parts) {
      EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is missing in: " << text;
    }
  }
}

}  // namespace stagecoach
