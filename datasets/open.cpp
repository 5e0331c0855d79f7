#include "datasets/open.h"

#include <filesystem>
#include <system_error>

#include "core/base/throw_if.h"
#include "datasets/array_folder.h"
#include "datasets/cifar10.h"
#include "datasets/files.h"
#include "datasets/generated.h"

namespace stagecoach {

TrainTest open_dataset(const std::string& where, const ImageFolderSettings& images, const TextSettings& text) {
  if (is_text(where)) {
    return load_text(where, text);
  }
  if (where == "generated") {
    return generate({});
  }
  const std::filesystem::path folder(where);
  if (is_cifar10(folder)) {
    return load_cifar10(folder);
  }
  if (is_array_folder(folder)) {
    return load_array_folder(folder);
  }
  std::error_code ignored;
  const auto has = [&](const char* name) {  // counts dangling links too
    return std::filesystem::exists(std::filesystem::symlink_status(folder / name, ignored));
  };
  if (has("train") || has("test")) {
    return load_image_folder(folder, images);
  }
  throw_if<DataError>(has("data_batch_1") || has("cifar-10-batches-py"),
                      "{} has CIFAR-10 as pickles of Python, which are not read: expected its binary version; {}",
                      where, kHowToGetData);
  throw DataError(
      fmt::format("{} contains no known data: expected CIFAR-10 (data_batch_1.bin, test_batch.bin, or the folder "
                  "cifar-10-batches-bin), arrays of NumPy (train_inputs.npy, train_targets.npy, test_inputs.npy and "
                  "test_targets.npy), or a folder of images (train/<class>/*.png or *.jpg, and test/<class>/…); {}",
                  where, kHowToGetData));
}

}  // namespace stagecoach
