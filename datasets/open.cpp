#include "datasets/open.h"

#include <filesystem>
#include <system_error>

#include "core/error.h"
#include "datasets/cifar10.h"
#include "datasets/files.h"
#include "datasets/generated.h"
#include "datasets/image_folder.h"

namespace stagecoach {

TrainTest open_dataset(const std::string& where) {
  if (where == "generated") {
    return generate({});
  }
  const std::filesystem::path folder(where);
  if (is_cifar10(folder)) {
    return load_cifar10(folder);
  }
  std::error_code ignored;
  if (std::filesystem::is_directory(folder / "train", ignored) ||
      std::filesystem::is_directory(folder / "test", ignored)) {
    return load_image_folder(folder);
  }
  throw DataError(
      fmt::format("{} holds no known data. Looked for CIFAR-10 (data_batch_1.bin, test_batch.bin, or the "
                  "folder cifar-10-batches-bin) and for pictures (train/<class>/*.png or *.jpg and "
                  "test/<class>/…); {}",
                  where, kHowToGetData));
}

}  // namespace stagecoach
