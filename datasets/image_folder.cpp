#include "datasets/image_folder.h"

#include <algorithm>
#include <cctype>
#include <system_error>
#include <thread>

#include "core/parallel_for.h"
#include "core/throw_if.h"
#include "datasets/budget.h"
#include "datasets/files.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSide = 32;
constexpr std::int64_t kPixels = 3 * kSide * kSide;

/// Returns the type of the file at `path`, following links. Throws DataError if that fails, as for a dangling link.
fs::file_type type_of(const fs::path& path) {
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  if (type == fs::file_type::not_found || type == fs::file_type::none) {
    std::error_code ignored;
    throw DataError(fmt::format("{}{} cannot be opened: {}; repair or delete it",
                                fs::is_symlink(path, ignored) ? "link " : "", path.string(), error.message()));
  }
  return type;
}

/// Returns whether `path` has the name of an image and is not a folder. Opening it finds any other problem.
bool is_image(const fs::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return (extension == ".png" || extension == ".jpg" || extension == ".jpeg") &&
         type_of(path) != fs::file_type::directory;
}

struct LabelledFile {
  fs::path path;
  std::int32_t label = 0;
};

/// Returns the class folders of a split, sorted. Other files, such as a README, are ignored.
std::vector<std::string> class_folders(const fs::path& split) {
  std::vector<std::string> names;
  for (const fs::path& path : list_folder(split)) {
    const fs::file_type type = type_of(path);
    if (type == fs::file_type::directory) {
      names.push_back(path.filename().string());
    } else if (type != fs::file_type::regular) {
      throw DataError(
          fmt::format("{} is neither a class folder nor a file: expected {}/<class>/*.png or *.jpg; delete it",
                      path.string(), split.string()));
    }
  }
  throw_if<DataError>(names.empty(), "{} has no class folders: expected images as {}/<class>/*.png or *.jpg; add some",
                      split.string(), split.string());
  return names;
}

std::vector<LabelledFile> find_images(const fs::path& split, const std::vector<std::string>& classes) {
  std::vector<LabelledFile> files;
  for (const std::string& name : class_folders(split)) {
    const auto known = std::find(classes.begin(), classes.end(), name);
    throw_if<DataError>(known == classes.end(),
                        "class '{}' is in {} but not in train/, so it cannot be learned; add images of it "
                        "to train/, or delete the folder",
                        name, split.string());
    const std::size_t before = files.size();
    for (const fs::path& path : list_folder(split / name)) {
      if (is_image(path)) {
        files.push_back({path, static_cast<std::int32_t>(known - classes.begin())});
      }
    }
    throw_if<DataError>(files.size() == before,
                        "{} has no images (*.png, *.jpg, *.jpeg); add some, or delete the folder",
                        (split / name).string());
  }
  return files;
}

/// Decodes images on many threads. Together they hold no more than one thread may: a thread waits until its file and
/// its pixels fit beside those of the other threads.
class FolderDecoder {
 public:
  explicit FolderDecoder(std::int64_t max_pixels)
      : max_pixels_(max_pixels),
        max_bytes_(kBytesPerPixel * max_pixels + kHeaders),
        bytes_(max_bytes_),
        pixels_(max_pixels) {}

  /// Any thread may call it. `target` is [3, kSide, kSide].
  void decode(const fs::path& path, std::uint8_t* target) {
    FileReader file(path);
    throw_if<DataError>(file.size() > max_bytes_,
                        "image {} is too large: expected at most {} bytes, got {}; make it smaller, or allow more with "
                        "--max-megapixels",
                        path.string(), max_bytes_, file.size());
    const Budget::Share of_bytes = bytes_.take(file.size());
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(file.size()));
    file.read(bytes.data(), bytes.size());
    const ImageSize size = read_image_size(bytes, path.string(), max_pixels_);
    const Budget::Share of_pixels = pixels_.take(size.height * size.width);
    decode_image(bytes, path.string(), target, {kSide, kSide}, max_pixels_);
  }

 private:
  static constexpr std::int64_t kBytesPerPixel = 8;    // uncompressed PNG: four channels of 16 bits
  static constexpr std::int64_t kHeaders = 1'048'576;  // for headers and other data in a file

  std::int64_t max_pixels_;
  std::int64_t max_bytes_;
  Budget bytes_;
  Budget pixels_;
};

Dataset load_split(const fs::path& split, const std::vector<std::string>& classes, std::int64_t max_pixels) {
  const std::vector<LabelledFile> files = find_images(split, classes);
  Dataset dataset = make_dataset(static_cast<std::int64_t>(files.size()), kSide, classes);
  auto* images = dataset.images.mutable_data<std::uint8_t>();
  auto* labels = dataset.labels.mutable_data<std::int32_t>();
  FolderDecoder decoder(max_pixels);
  auto load = [&](std::int64_t i) {
    const LabelledFile& file = files[static_cast<std::size_t>(i)];
    decoder.decode(file.path, images + i * kPixels);
    labels[i] = file.label;
  };
  // A separate pool: a device's pool belongs to the rank on that device, which may run on another thread.
  ThreadPool pool;
  pool.resize(static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
  pool.run(
      dataset.size(), [](void* context, std::int64_t i) { (*static_cast<decltype(load)*>(context))(i); }, &load);
  return dataset;
}

}  // namespace

TrainTest load_image_folder(const fs::path& folder, std::int64_t max_pixels) {
  const std::vector<fs::path> entries = list_folder(folder);
  for (const char* split : {"train", "test"}) {
    throw_if<DataError>(std::find(entries.begin(), entries.end(), folder / split) == entries.end(),
                        "{} has no folder {}/: expected images as {}/train/<class>/*.png (or jpg, jpeg) and "
                        "{}/test/<class>/…; add the folder",
                        folder.string(), split, folder.string(), folder.string());
  }
  const std::vector<std::string> classes = class_folders(folder / "train");
  return {load_split(folder / "train", classes, max_pixels), load_split(folder / "test", classes, max_pixels)};
}

}  // namespace stagecoach
