// CIFAR-10 in its binary layout: datasets/cifar10.h. An input that begins with "names" has the class names in it, any
// other is a batch.

#include <string>

#include "core/base/error.h"
#include "datasets/cifar10.h"
#include "tests/fuzz/input_file.h"
#include "tests/fuzz/target.h"

using namespace stagecoach;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const test::TemporaryFolder folder;
  static const std::string good(3073, '\3');
  const std::string_view text = fuzz::text_of(data, size);
  const bool has_names = text.substr(0, 5) == "names";
  fuzz::write_file(folder / "test_batch.bin", good);
  fuzz::write_file(folder / "data_batch_1.bin", has_names ? std::string_view(good) : text);
  fuzz::write_file(folder / "batches.meta.txt", has_names ? text.substr(5) : "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n");
  fuzz::accepts<DataError>([&] {
    const TrainTest both = load_cifar10(folder.path());
    fuzz::require(both.train.classes.size() == 10, "there are not ten classes");
    for (std::int64_t i = 0; i < both.train.targets.size(0); ++i) {
      const auto label = both.train.targets.data<std::int32_t>()[i];
      fuzz::require(label >= 0 && label < 10, "a label that is none");
    }
  });
  return 0;
}
