// What layers cost, which --profile-file reads: chapters/common/profile_file.h.

#include "chapters/common/profile_file.h"
#include "core/base/error.h"
#include "nn/models.h"
#include "parallel/pipeline/partition.h"
#include "tests/fuzz/target.h"

using namespace stagecoach;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto model = make_model("toy");
  static const Settings settings{.training = {.model = "toy", .batch_size = 64, .microbatches = 4}};
  ModelProfile profile;
  if (fuzz::accepts<DataError>(
          [&] { profile = profile_from_json(std::string(fuzz::text_of(data, size)), "profile.json"); })) {
    fuzz::require(to_json(profile_from_json(to_json(profile), "again")) == to_json(profile), "it changes when written");
    mismatch(profile, settings, *model);
    placeholder_model(profile)->output_shape({1, 4});
    partition(layer_costs(profile.layers, Stage::Recompute::no), 3, Link{1e-6, 1e9});
  }
  return 0;
}
