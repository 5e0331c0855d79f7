#include "chapters/advise/request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "chapters/common/open.h"
#include "chapters/common/planned_memory.h"
#include "chapters/common/profile_file.h"
#include "core/base/text_file.h"
#include "core/base/throw_if.h"
#include "parallel/tensor_parallel/tensor_parallel_layers.h"

namespace stagecoach {
namespace {

constexpr Device kPlanned{DeviceType::meta};

/// Returns a data set that tells the models how many classes there are: 10, as of generated images, or all bytes.
Dataset data_with_classes(const TrainingSettings& training) {
  Dataset data;
  data.classes.resize(reads_text(training) ? 256 : 10);
  return data;
}

ModelCosts costs_of_model(const Settings& settings, std::int64_t samples, int tensor) {
  const TrainingSettings& training = settings.training;
  const auto exchanges = std::make_shared<std::vector<Exchange>>();
  const auto layers =
      tensor == 1 ? nullptr
                  : std::make_shared<TensorParallelLayers>(tensor, SequenceParallel::no, ClassParallel::no, exchanges);
  const auto model = make_model_of(training, data_with_classes(training), layers);
  const Tensor inputs = blank_inputs(training, samples, kPlanned);
  ModelCosts costs = modelled_costs(
      *model, inputs, blank_targets(training, samples, kPlanned), *settings.world.modelled_device, loss_of(training),
      [&](NamedTensors parameters) { return make_optimizer(training, std::move(parameters)); });
  Shape shape = inputs.shape();
  for (int i = 0; i < model->size() && tensor > 1; ++i) {
    exchanges->clear();
    shape = model->layer(i)->output_shape(shape);
    costs.exchanges.push_back(*exchanges);
  }
  if (tensor > 1 && !costs.exchanges.front().empty()) {
    costs.exchanges.front().front().backward = 0;  // the images need no gradient
  }
  return costs;
}

/// Returns the costs in the files, by the samples of a micro-batch and the tensor-parallel ranks.
using Profiles = std::map<std::pair<std::int64_t, int>, ModelCosts>;

Profiles read_profiles(const std::vector<std::string>& files) {
  Profiles profiles;
  for (const std::string& file : files) {
    const ModelProfile profile = profile_from_json(read_text(file, "check the file given as --profile"), file);
    const auto tp =
        std::find_if(profile.sizes.begin(), profile.sizes.end(), [](const auto& size) { return size.first == "tp"; });
    const int tensor = tp == profile.sizes.end() ? 1 : std::max(1, static_cast<int>(tp->second));
    throw_if<UsageError>(
        !profiles.emplace(std::pair{profile.microbatch, tensor}, costs_of_profile(profile.layers)).second,
        "--profile {}: another file has micro-batches of {} samples too; leave one out", file, profile.microbatch);
  }
  return profiles;
}

ModelCosts costs_of_files(const Profiles& profiles, std::int64_t samples, int tensor) {
  const auto found = profiles.find({samples, tensor});
  throw_if<UsageError>(found == profiles.end(), "no --profile has micro-batches of {} samples{}", samples,
                       tensor == 1 ? "" : fmt::format(" on {} tensor-parallel ranks", tensor));
  return found->second;
}

}  // namespace

AdviceRequest request_of(const AdviseOptions& options) {
  const Settings& settings = options.settings;
  AdviceRequest request;
  request.ranks = settings.world.ranks;
  request.batch_size = settings.training.batch_size;
  request.network = *settings.world.link;
  request.memory_limit = options.memory_limit > 0 ? options.memory_limit
                                                  : static_cast<double>(settings.world.modelled_device->memory_bytes);
  request.optimizer_bytes_per_weight_byte = optimizer_bytes_per_weight_byte(settings.training);
  request.data = options.data;
  request.pipeline = options.pipeline;
  request.tensor = options.tensor;
  request.microbatches = options.microbatches;
  request.recompute = options.recompute;
  request.bucket_size = options.bucket_size;
  request.schedules = options.schedules;
  request.late = options.late;
  if (options.profiles.empty()) {
    using Known =
        std::map<std::pair<std::int64_t, int>, ModelCosts>;  // of all searches of this request and its changes
    request.costs = [&settings, known = std::make_shared<Known>()](std::int64_t samples, int tensor) {
      const auto found = known->find({samples, tensor});
      return found != known->end()
                 ? found->second
                 : known->emplace(std::pair(samples, tensor), costs_of_model(settings, samples, tensor)).first->second;
    };
  } else {
    request.costs = [profiles = read_profiles(options.profiles)](std::int64_t samples, int tensor) {
      return costs_of_files(profiles, samples, tensor);
    };
  }
  return request;
}

}  // namespace stagecoach
