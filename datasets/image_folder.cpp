#include "datasets/image_folder.h"

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <set>
#include <system_error>
#include <thread>

#include "core/base/file_identity.h"
#include "core/base/memory_limits.h"
#include "core/base/phrases.h"
#include "core/base/throw_if.h"
#include "core/parallel_for.h"
#include "datasets/budget.h"
#include "datasets/files.h"
#include "datasets/sanity_check.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

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

/// Returns the extension in small letters: ".png".
std::string extension_of(const fs::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension;
}

bool is_one_of(const std::string& extension, std::initializer_list<const char*> extensions) {
  return std::find(extensions.begin(), extensions.end(), extension) != extensions.end();
}

bool is_image(const std::string& extension) { return is_one_of(extension, {".png", ".jpg", ".jpeg", ".jpe", ".jfif"}); }

/// Returns why a file of this extension is left out.
std::string reason_for(const std::string& extension) {
  if (is_one_of(extension, {".webp", ".gif", ".bmp", ".tif", ".tiff", ".heic", ".heif", ".avif", ".jp2", ".jxl", ".ppm",
                            ".pgm", ".tga", ".svg", ".psd", ".ico", ".dng", ".cr2", ".nef"})) {
    return extension + " (images, but neither PNG nor JPEG)";
  }
  return extension.empty() ? "without an extension" : extension;
}

struct LabelledFile {
  fs::path path;
  std::int32_t label = 0;
};

void add_hidden(std::int64_t count, DataSource& source) {
  if (count > 0) {
    source.left_out["hidden"] += count;
  }
}

/// The files of a split, and what is left out of it.
struct SplitFiles {
  std::vector<LabelledFile> images;
  DataSource source;
};

/// Returns the class folders of a split, sorted. Files beside them, such as a README, are left out.
std::vector<std::string> class_folders(const fs::path& split, DataSource& source) {
  std::vector<std::string> names;
  std::int64_t hidden = 0;
  for (const fs::path& path : list_folder(split, &hidden)) {
    const fs::file_type type = type_of(path);
    if (type == fs::file_type::directory) {
      names.push_back(path.filename().string());
    } else if (type == fs::file_type::regular) {
      ++source.left_out["outside the folders of classes"];
    } else {
      throw DataError(
          fmt::format("{} is neither a class folder nor a file: expected {}/<class>/*.png or *.jpg; delete it",
                      path.string(), split.string()));
    }
  }
  add_hidden(hidden, source);
  throw_if<DataError>(names.empty(), "{} has no class folders: expected images as {}/<class>/*.png or *.jpg; add some",
                      split.string(), split.string());
  return names;
}

/// Adds the images of a class in `folder` and below it. `read` has the folders of the class that were read, without
/// links: links between folders may lead to one in many ways.
void find_below(const fs::path& folder, std::int32_t label, std::set<fs::path>& read, SplitFiles& found) {
  std::error_code error;
  const fs::path real = fs::canonical(folder, error);
  if (!error && !read.insert(real).second) {
    ++found.source.left_out["links to folders above them or read already"];
    return;
  }
  std::int64_t hidden = 0;
  for (const fs::path& path : list_folder(folder, &hidden)) {
    const std::string extension = extension_of(path);
    const fs::file_type type = is_image(extension) ? type_of(path) : fs::status(path, error).type();
    if (type == fs::file_type::not_found || type == fs::file_type::none) {
      ++found.source.left_out["links that lead nowhere"];
      continue;
    }
    if (type == fs::file_type::directory) {
      find_below(path, label, read, found);
    } else if (is_image(extension)) {  // opening it finds any other problem
      found.images.push_back({path, label});
    } else {
      ++found.source.left_out[reason_for(extension)];
    }
  }
  add_hidden(hidden, found.source);
}

SplitFiles find_images(const fs::path& split, const std::vector<std::string>& classes) {
  SplitFiles found;
  for (const std::string& name : class_folders(split, found.source)) {
    const auto known = std::find(classes.begin(), classes.end(), name);
    throw_if<DataError>(known == classes.end(),
                        "class '{}' is in {} but not in train/, so it cannot be learned: train/ has {}; add "
                        "images of it to train/, rename the folder, or delete it",
                        name, split.string(), first_few(classes));
    const std::size_t before = found.images.size();
    std::set<fs::path> read = {fs::canonical(split.parent_path()), fs::canonical(split)};
    find_below(split / name, static_cast<std::int32_t>(known - classes.begin()), read, found);
    throw_if<DataError>(found.images.size() == before,
                        "{} has no images (*.png, *.jpg, *.jpeg, *.jpe, *.jfif); add some, convert others to one of "
                        "these, or delete the folder",
                        (split / name).string());
    std::sort(found.images.begin() + static_cast<std::ptrdiff_t>(before), found.images.end(),
              [](const LabelledFile& a, const LabelledFile& b) { return a.path < b.path; });
  }
  found.source.files = static_cast<std::int64_t>(found.images.size());
  return found;
}

/// Decodes images on many threads. Together they hold no more than one thread may: a thread waits until its file and
/// its pixels fit beside those of the other threads.
class FolderDecoder {
 public:
  explicit FolderDecoder(const ImageFolderSettings& settings)
      : settings_(settings),
        max_bytes_(kBytesPerPixel * settings.max_pixels + kHeaders),
        bytes_(max_bytes_),
        pixels_(settings.max_pixels) {}

  /// Any thread may call it. `target` is [3, image_size, image_size].
  void decode(const fs::path& path, std::uint8_t* target) {
    FileReader file(path);
    throw_if<DataError>(file.size() > max_bytes_,
                        "image {} is too large: expected at most {} bytes, got {}; make it smaller, or allow more with "
                        "`max_pixels`",
                        path.string(), max_bytes_, file.size());
    const Budget::Share byte_share = bytes_.take(file.size());
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(file.size()));
    file.read(bytes.data(), bytes.size());
    const ImageSize size = read_image_size(bytes, path.string(), settings_.max_pixels);
    const Budget::Share pixel_share = pixels_.take(size.height * size.width);
    decode_image(bytes, path.string(), target, {settings_.image_size, settings_.image_size}, settings_.max_pixels,
                 settings_.background);
  }

 private:
  static constexpr std::int64_t kBytesPerPixel = 8;    // uncompressed PNG: four channels of 16 bits
  static constexpr std::int64_t kHeaders = 1'048'576;  // for headers and other data in a file

  ImageFolderSettings settings_;
  std::int64_t max_bytes_;
  Budget bytes_;
  Budget pixels_;
};

Dataset decode_all(const std::vector<LabelledFile>& files, const std::vector<std::string>& classes,
                   const ImageFolderSettings& settings) {
  Dataset dataset = make_dataset(static_cast<std::int64_t>(files.size()), settings.image_size, classes);
  const std::int64_t bytes_per_image = 3 * settings.image_size * settings.image_size;
  auto* images = dataset.inputs.mutable_data<std::uint8_t>();
  auto* labels = dataset.targets.mutable_data<std::int32_t>();
  FolderDecoder decoder(settings);
  auto load = [&](std::int64_t i) {
    const LabelledFile& file = files[static_cast<std::size_t>(i)];
    decoder.decode(file.path, images + i * bytes_per_image);
    labels[i] = file.label;
  };
  // A separate pool: a device's pool belongs to the rank on that device, which may run on another thread.
  ThreadPool pool;
  pool.resize(static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
  pool.run(
      dataset.size(), [](void* context, std::int64_t i) { (*static_cast<decltype(load)*>(context))(i); }, &load);
  return dataset;
}

/// Returns what is left out of either split or stands beside them.
DataSource source_of(const SplitFiles& train, const SplitFiles& test, std::int64_t entries_beside) {
  DataSource source = train.source;
  source.files += test.source.files;
  for (const auto& [reason, count] : test.source.left_out) {
    source.left_out[reason] += count;
  }
  if (entries_beside > 0) {
    source.left_out["beside train/ and test/"] = entries_beside;
  }
  return source;
}

}  // namespace

TrainTest load_image_folder(const fs::path& folder, const ImageFolderSettings& settings) {
  STAGECOACH_CHECK(settings.image_size > 0, "load_image_folder: expected a positive image_size, got {}",
                   settings.image_size);
  std::int64_t hidden = 0;
  const std::vector<fs::path> entries = list_folder(folder, &hidden);
  for (const char* split : {"train", "test"}) {
    throw_if<DataError>(std::find(entries.begin(), entries.end(), folder / split) == entries.end(),
                        "{} has no folder {}/: expected images as {}/train/<class>/*.png (or jpg, jpeg) and "
                        "{}/test/<class>/…; add the folder",
                        folder.string(), split, folder.string(), folder.string());
  }
  const auto identity = identity_of(folder / "test");
  throw_if<DataError>(identity && identity == identity_of(folder / "train"),
                      "{} is the same folder as {}: expected other images for the test; replace the link",
                      (folder / "test").string(), (folder / "train").string());
  DataSource ignored;  // find_images counts the same files
  const std::vector<std::string> classes = class_folders(folder / "train", ignored);
  SplitFiles train = find_images(folder / "train", classes);
  add_hidden(hidden, train.source);
  const SplitFiles test = find_images(folder / "test", classes);
  require_memory_for(
      fmt::format("the images of {} at {} x {} pixels", folder.string(), settings.image_size, settings.image_size),
      static_cast<std::uint64_t>(train.images.size() + test.images.size()) *
          static_cast<std::uint64_t>(3 * settings.image_size * settings.image_size));
  TrainTest data{decode_all(train.images, classes, settings), decode_all(test.images, classes, settings),
                 source_of(train, test, static_cast<std::int64_t>(entries.size()) - 2)};
  data.source.notes = sanity_check(data.train, data.test, [&](std::int64_t i) {
    const auto index = static_cast<std::size_t>(i);
    const std::size_t trained = train.images.size();
    return (index < trained ? train.images[index] : test.images[index - trained]).path.string();
  });
  return data;
}

}  // namespace stagecoach
