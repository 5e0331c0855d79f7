#include "datasets/image_folder.h"

#include <algorithm>
#include <cctype>
#include <system_error>
#include <thread>

#include "core/error.h"
#include "core/parallel_for.h"
#include "datasets/files.h"
#include "datasets/picture.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSide = 32;
constexpr std::int64_t kPixels = 3 * kSide * kSide;

bool is_folder(const fs::path& path) {
  std::error_code ignored;  // what cannot be looked at is no folder; opening it will say why
  return fs::is_directory(path, ignored);
}

bool is_picture(const fs::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return (extension == ".png" || extension == ".jpg" || extension == ".jpeg") && !is_folder(path);
}

struct LabelledFile {
  fs::path path;
  std::int32_t label = 0;
};

/// The class folders of a split, sorted.
std::vector<std::string> class_folders(const fs::path& split) {
  std::vector<std::string> names;
  for (const fs::path& path : list_folder(split)) {
    if (is_folder(path)) {
      names.push_back(path.filename().string());
    }
  }
  if (names.empty()) {
    throw DataError(fmt::format("{} has no class folders; pictures belong in {}/<class>/*.png or *.jpg", split.string(),
                                split.string()));
  }
  return names;
}

std::vector<LabelledFile> find_pictures(const fs::path& split, const std::vector<std::string>& classes) {
  std::vector<LabelledFile> files;
  for (const std::string& name : class_folders(split)) {
    const auto known = std::find(classes.begin(), classes.end(), name);
    if (known == classes.end()) {
      throw DataError(
          fmt::format("class '{}' is in {} but not in train/, so it cannot be learned; add pictures of it "
                      "to train/, or delete the folder",
                      name, split.string()));
    }
    const std::size_t before = files.size();
    for (const fs::path& path : list_folder(split / name)) {
      if (is_picture(path)) {
        files.push_back({path, static_cast<std::int32_t>(known - classes.begin())});
      }
    }
    if (files.size() == before) {
      throw DataError(fmt::format("{} has no pictures (*.png, *.jpg, *.jpeg); add some, or delete the folder",
                                  (split / name).string()));
    }
  }
  return files;
}

Dataset load_split(const fs::path& split, const std::vector<std::string>& classes) {
  const std::vector<LabelledFile> files = find_pictures(split, classes);
  Dataset dataset = make_dataset(static_cast<std::int64_t>(files.size()), kSide, classes);
  auto* images = dataset.images.mutable_data<std::uint8_t>();
  auto* labels = dataset.labels.mutable_data<std::int32_t>();
  auto load = [&](std::int64_t i) {
    const LabelledFile& file = files[static_cast<std::size_t>(i)];
    decode_picture(read_file(file.path), file.path.string(), images + i * kPixels, {kSide, kSide});
    labels[i] = file.label;
  };
  // A pool of our own: the one of a device belongs to the rank on it, which may be another thread's.
  ThreadPool pool;
  pool.resize(static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
  pool.run(
      dataset.size(), [](void* context, std::int64_t i) { (*static_cast<decltype(load)*>(context))(i); }, &load);
  return dataset;
}

}  // namespace

TrainTest load_image_folder(const fs::path& folder) {
  const std::vector<fs::path> entries = list_folder(folder);
  for (const char* split : {"train", "test"}) {
    if (std::find(entries.begin(), entries.end(), folder / split) == entries.end()) {
      throw DataError(
          fmt::format("{} has no folder {}/; pictures must lie in {}/train/<class>/*.png (or jpg, jpeg) and "
                      "{}/test/<class>/…",
                      folder.string(), split, folder.string(), folder.string()));
    }
  }
  const std::vector<std::string> classes = class_folders(folder / "train");
  return {load_split(folder / "train", classes), load_split(folder / "test", classes)};
}

}  // namespace stagecoach
