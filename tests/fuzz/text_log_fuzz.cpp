// What a program printed, as `compare` reads it: chapters/compare/run_record.h.

#include "chapters/compare/run_record.h"
#include "core/base/error.h"
#include "tests/fuzz/compare_run.h"
#include "tests/fuzz/target.h"

using namespace stagecoach;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  RunRecord run = fuzz::run_called("mutated.log");
  if (fuzz::accepts<DataError>([&] { read_text_log(std::string(fuzz::text_of(data, size)), run.path, run); })) {
    fuzz::compare_with_good_run(run);
  }
  return 0;
}
