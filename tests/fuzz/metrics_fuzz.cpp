// metrics.jsonl and config.json as `compare` reads them, and what it says about them: chapters/compare/run_record.h.

#include "chapters/compare/run_record.h"
#include "core/base/error.h"
#include "tests/fuzz/compare_run.h"
#include "tests/fuzz/target.h"

using namespace stagecoach;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(fuzz::text_of(data, size));
  RunRecord run = fuzz::run_called("mutated");
  if (fuzz::accepts<DataError>([&] { run.settings = read_config(text, "config.json"); })) {
    run.epochs = fuzz::good_run().epochs;
    fuzz::compare_with_good_run(run);
  }
  if (fuzz::accepts<DataError>([&] { read_metrics(text, "metrics.jsonl", run); })) {
    fuzz::compare_with_good_run(run);
  }
  return 0;
}
