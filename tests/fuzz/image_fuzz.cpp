// PNG and JPEG files: datasets/image.h.

#include <vector>

#include "core/base/error.h"
#include "datasets/image.h"
#include "tests/fuzz/target.h"

using namespace stagecoach;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static std::vector<std::uint8_t> target(3 * 16 * 16);
  fuzz::accepts<DataError>([&] { decode_image({data, size}, "mutated.png", target.data(), {16, 16}); });
  return 0;
}
