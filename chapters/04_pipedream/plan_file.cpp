#include "chapters/04_pipedream/plan_file.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <type_traits>
#include <utility>

#include "chapters/common/bounds.h"
#include "chapters/common/run_folder.h"
#include "core/parse_json.h"
#include "core/throw_if.h"
#include "datasets/shares.h"

namespace stagecoach {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kWorkspace = "workspace_bytes";  // missing in older plans

std::int64_t microbatch_of(const Settings& settings) {
  return micro_batch_sizes(settings.training.batch_size, settings.training.microbatches)[0];
}

/// Returns what determines the sizes of a model's layers, by flag. Older plans do not have them.
std::array<std::pair<const char*, std::int64_t>, 4> sizes_in(const TrainingSettings& training) {
  return {{{"image-size", training.image_size},
           {"depth", training.depth},
           {"width", training.width},
           {"heads", training.heads}}};
}

/// Calls visit(key, value) for each measurement of a layer.
template <class Profile, class Visit>
void for_each_figure(Profile& layer, const Visit& visit) {
  visit("forward_seconds", layer.forward);
  visit("backward_input_seconds", layer.backward_input);
  visit("backward_weight_seconds", layer.backward_weight);
  visit("kept_bytes", layer.kept_bytes);
  visit("freed_bytes", layer.freed_bytes);
  visit("output_bytes", layer.output_bytes);
  visit("parameter_bytes", layer.parameter_bytes);
  visit(kWorkspace, layer.workspace_bytes);
}

Json json_of(const std::string& name, const LayerProfile& layer) {
  Json json{{"name", name}};
  for_each_figure(layer, [&](std::string_view key, const auto& value) { json[std::string(key)] = value; });
  return json;
}

LayerProfile layer_of(const Json& json, const std::string& path) {
  LayerProfile layer;
  for_each_figure(layer, [&](std::string_view key, auto& value) {
    if (key == kWorkspace && !json.contains(std::string(key))) {
      return;
    }
    constexpr bool kIsBytes = std::is_same_v<std::decay_t<decltype(value)>, std::int64_t>;
    constexpr double kMax = kIsBytes ? 1LL << 40 : 1e6;
    const Json& figure = json.at(std::string(key));
    const bool is_number = kIsBytes ? figure.is_number_integer() : figure.is_number();
    throw_if<DataError>(!is_number || !(figure >= 0 && figure <= kMax),
                        "{}: '{}' of layer {}: expected {} from 0 to {:.0f}, got {}", path, key,
                        json.value("name", "?"), kIsBytes ? "a whole number of bytes" : "seconds", kMax, figure.dump());
    figure.get_to(value);
  });
  return layer;
}

void require_model(const Json& json, const std::string& path, const Settings& settings, const Sequential& model) {
  const auto& layers = json.at("layers");
  const auto of = json.at("model").get<std::string>();
  for (const auto& [flag, size] : sizes_in(settings.training)) {
    throw_if<UsageError>(of == settings.training.model && json.contains(flag) && json.at(flag) != size,
                         "--plan {0}: the layers were measured with --{1} {2}, the run has {3}; give --{1} {2}, or "
                         "make another plan with --save-plan",
                         path, flag, json.value(flag, Json()).dump(), size);
  }
  bool same = of == settings.training.model && static_cast<int>(layers.size()) == model.size();
  for (int i = 0; same && i < model.size(); ++i) {
    same = layers[static_cast<std::size_t>(i)].at("name").get<std::string>() == model.name(i);
  }
  throw_if<UsageError>(!same,
                       "--plan {}: the plan is for model {} with {} layers, the run trains {} with {}; give --model "
                       "{}, or make a plan for this model with --save-plan",
                       path, of, layers.size(), settings.training.model, model.size(), of);
  const auto device = json.at("device").get<std::string>();
  throw_if<UsageError>(device != settings.world.device.text(),
                       "--plan {}: the layers were measured on {}, the run uses {}; give --device {}, or make another "
                       "plan with --save-plan",
                       path, device, settings.world.device.text(), device);
  const Json& images = json.at("microbatch");
  throw_if<DataError>(!images.is_number_integer() || images < 1 || images > kMaxBatchSize,
                      "{}: 'microbatch': expected a whole number from 1 to {}, got {}", path, kMaxBatchSize,
                      images.dump());
  throw_if<UsageError>(images != microbatch_of(settings),
                       "--plan {}: the layers were measured with micro-batches of {} images, the run has {}; give "
                       "--batch-size {}, or make another plan with --save-plan",
                       path, images.dump(), microbatch_of(settings),
                       images.get<std::int64_t>() * settings.training.microbatches);
}

/// Returns a list of whole numbers within the bounds of --split. Throws DataError for any other list.
std::vector<int> counts_in(const Json& json, const char* key, const std::string& path) {
  const Json& list = json.at(key);
  for (const Json& count : list) {
    throw_if<DataError>(!count.is_number_integer() || count < 1 || count > kMaxSplit,
                        "{0}: '{1}': expected whole numbers from 1 to {3}, got {2}", path, key, count.dump(),
                        kMaxSplit);
  }
  throw_if<DataError>(list.size() > kMaxSplit, "{0}: '{1}': expected at most {3} numbers, got {2}", path, key,
                      list.size(), kMaxSplit);
  return list.get<std::vector<int>>();
}

Partition stages_in(const Json& json, const std::string& path, const Settings& settings, const Sequential& model) {
  Partition stages{counts_in(json, "split", path), counts_in(json, "replicas", path), json.at("seconds").get<double>()};
  const int assigned = std::accumulate(stages.split.begin(), stages.split.end(), 0);
  throw_if<DataError>(assigned != model.size(), "{0}: 'split': expected {2} layers in all, as in the model, got {1}",
                      path, assigned, model.size());
  throw_if<DataError>(stages.split.size() != stages.replicas.size(),
                      "{0}: expected as many replicas as stages, got {2} for {1} stages", path, stages.split.size(),
                      stages.replicas.size());
  const int ranks = std::accumulate(stages.replicas.begin(), stages.replicas.end(), 0);
  throw_if<UsageError>(ranks != settings.world.ranks,
                       "--plan {}: the stages are for {} ranks, the run has {}; give --ranks {}, or --balance "
                       "pipedream to choose other stages",
                       path, ranks, settings.world.ranks, ranks);
  return stages;
}

}  // namespace

void save_plan(const std::string& path, const Settings& settings, const Sequential& model, const PlanFile& plan) {
  Json layers = Json::array();
  for (int i = 0; i < model.size(); ++i) {
    layers.push_back(json_of(model.name(i), plan.layers[static_cast<std::size_t>(i)]));
  }
  Json json{
      {"model", settings.training.model},
      {"microbatch", microbatch_of(settings)},
      {"device", settings.world.device.text()},
      {"layers", layers},
      {"stages", {{"split", plan.stages.split}, {"replicas", plan.stages.replicas}, {"seconds", plan.stages.seconds}}}};
  for (const auto& [flag, size] : sizes_in(settings.training)) {
    json[flag] = size;
  }
  write_text(path, json.dump(2) + "\n");
}

PlanFile read_plan(const std::string& path, const Settings& settings, const Sequential& model) {
  const std::string text = read_text(path, "check the file given as --plan; --save-plan writes one");
  try {
    const Json json = parse_json<Json>(text, path, "--save-plan writes a plan");
    require_model(json, path, settings, model);
    PlanFile plan;
    for (const Json& layer : json.at("layers")) {
      plan.layers.push_back(layer_of(layer, path));
    }
    if (settings.pipeline.balance == Balance::plan) {
      plan.stages = stages_in(json.at("stages"), path, settings, model);
    }
    return plan;
  } catch (const Json::exception& error) {
    throw DataError(fmt::format("{}: cannot be read as a plan ({}); --save-plan writes one", path, error.what()));
  }
}

}  // namespace stagecoach
