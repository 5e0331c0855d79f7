// Arrays of NumPy: datasets/npy.h, and the labels of datasets/array_folder.h. An input is the file of the labels.

#include <string>

#include "core/base/error.h"
#include "datasets/array_folder.h"
#include "tests/fuzz/input_file.h"
#include "tests/fuzz/target.h"

using namespace stagecoach;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const test::TemporaryFolder folder;
  static const Dataset two{Tensor::zeros({2, 3, 4, 4}, DType::uint8), Tensor::zeros({2}, DType::int32)};
  static const bool written = (write_array_folder(folder.path(), {two, two}), true);
  fuzz::require(written, "there are no arrays");
  fuzz::write_file(folder / "train_targets.npy", fuzz::text_of(data, size));
  fuzz::accepts<DataError>([&] {
    const TrainTest both = load_array_folder(folder.path());
    fuzz::require(both.train.size() == 2, "there are not two samples");
    fuzz::require(both.train.classes.size() <= 100000, "there are too many classes");
  });
  return 0;
}
