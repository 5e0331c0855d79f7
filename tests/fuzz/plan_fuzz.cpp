// Measured layers and chosen stages, which --plan reads: chapters/04_pipedream/plan_file.h.

#include "chapters/04_pipedream/plan_file.h"
#include "core/error.h"
#include "nn/models.h"
#include "tests/fuzz/input_file.h"
#include "tests/fuzz/target.h"

using namespace stagecoach;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::InputFile file("plan");
  static const auto model = make_model("toy");
  static const Settings settings{.training = {.model = "toy", .batch_size = 64, .microbatches = 4},
                                 .pipeline = {.balance = Balance::plan},
                                 .world = {.ranks = 3}};
  file.write(fuzz::text_of(data, size));
  PlanFile plan;
  if (fuzz::accepts<DataError, UsageError>([&] { plan = read_plan(file.path(), settings, *model); })) {
    fuzz::accepts<UsageError>([&] {
      slowest_part(layer_costs(plan.layers, Stage::Recompute::no), plan.stages.split, plan.stages.replicas,
                   Link{1e-6, 1e9});
    });
  }
  return 0;
}
