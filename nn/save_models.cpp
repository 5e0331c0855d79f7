#include "nn/save_models.h"

#include <filesystem>
#include <set>
#include <system_error>

#include "core/base/throw_if.h"
#include "nn/safetensors.h"
#include "nn/weights.h"

namespace stagecoach {
namespace {

/// Returns handles on all tensors, by their names in the file.
NamedTensors trained_tensors(const std::vector<TrainedModel>& models) {
  NamedTensors all;
  std::set<std::string> names;
  for (const TrainedModel& trained : models) {
    const std::string& name = trained.name;
    throw_if<UsageError>(name.empty() || name.find('.') != std::string::npos || !names.insert(name).second,
                         "models: expected a name of its own for each model, without dots, got '{}'; name it after its "
                         "purpose, such as generator",
                         name);
    for (const auto& [tensor_name, tensor] : weights_of(trained.model)) {
      all.emplace_back(name + ".model." + tensor_name, tensor);
    }
    for (const auto& [tensor_name, tensor] : trained.optimizer.state()) {
      all.emplace_back(name + ".optimizer." + tensor_name, tensor);
    }
  }
  return all;
}

}  // namespace

void save_models(const std::string& path, const std::vector<TrainedModel>& models) {
  const NamedTensors all = trained_tensors(models);
  if (const auto folder = std::filesystem::path(path).parent_path(); !folder.empty()) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    throw_if<DataError>(bool(error), "{}: cannot create the folder: {}; check the path and its permissions",
                        folder.string(), error.message());
  }
  save_tensors(path, {all, {}});
}

void load_models(const std::string& path, const std::vector<TrainedModel>& models) {
  copy_by_name(load_tensors(path).tensors, trained_tensors(models), path);
}

}  // namespace stagecoach
