// Weights and checkpoints on disk: nn/safetensors.h.

#include "core/base/error.h"
#include "nn/safetensors.h"
#include "tests/fuzz/input_file.h"
#include "tests/fuzz/target.h"

using namespace stagecoach;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::InputFile file("tensors");
  file.write(fuzz::with_header_length(fuzz::text_of(data, size)));
  fuzz::accepts<DataError>([] { load_tensors(file.path()); });
  return 0;
}
