#include "chapters/common/profile_file.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>
#include <string_view>
#include <type_traits>

#include "chapters/common/bounds.h"
#include "core/base/json_object.h"
#include "core/base/parse_json.h"
#include "core/base/throw_if.h"

namespace stagecoach {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxLayers = 1024;  // the partitioner's time grows with the square
constexpr std::int64_t kMaxSize = 1 << 20;
constexpr double kMaxSeconds = 1e6;
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 40;
constexpr const char* kDeferredBytes = "deferred_bytes";  // optional

/// Returns what determines the sizes of a model's layers.
std::vector<std::pair<std::string, std::int64_t>> sizes_in(const Settings& settings) {
  const TrainingSettings& training = settings.training;
  return {{"image-size", training.image_size},
          {"depth", training.depth},
          {"width", training.width},
          {"heads", training.heads},
          {"context", training.context},
          {"tensor-slices", training.tensor_slices},
          {"tp", settings.data_parallel.mesh->tensor}};
}

/// Calls visit(key, value) for each cost of a layer.
template <class Profile, class Visit>
void for_each_cost(Profile& layer, const Visit& visit) {
  visit("forward_seconds", layer.forward);
  visit("backward_input_seconds", layer.backward_input);
  visit("backward_weight_seconds", layer.backward_weight);
  visit("kept_bytes", layer.kept_bytes);
  visit("freed_bytes", layer.freed_bytes);
  visit(kDeferredBytes, layer.deferred_bytes);
  visit("output_bytes", layer.output_bytes);
  visit("parameter_bytes", layer.parameter_bytes);
  visit("workspace_bytes", layer.workspace_bytes);
}

LayerProfile layer_from(JsonObject& object) {
  LayerProfile layer;
  for_each_cost(layer, [&](const char* key, auto& value) {
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, double>) {
      value = object.number(key, 0, kMaxSeconds, "seconds");
    } else if (std::string_view(key) == kDeferredBytes && !object.has(key)) {
      value = layer.kept_bytes;
    } else {
      value = object.whole(key, 0, kMaxBytes, " of bytes");
    }
  });
  return layer;
}

/// Adds the layers of the list `json` to the profile.
void add_layers(const Json& json, const std::string& where, ModelProfile& profile) {
  throw_if<DataError>(!json.is_array() || json.empty() || json.size() > kMaxLayers,
                      "{}: 'layers': expected a list of 1 to {} layers, got {}; correct it", where, kMaxLayers,
                      json.is_array() ? fmt::format("{}", json.size()) : json.type_name());
  std::set<std::string> names;
  for (std::size_t i = 0; i < json.size(); ++i) {
    JsonObject object(json[i], fmt::format("{}: layer {}", where, i));
    profile.names.push_back(object.name("name"));
    throw_if<DataError>(!names.insert(profile.names.back()).second,
                        "{}: layer {}: expected a name of its own, got '{}' for a second time; rename it", where, i,
                        profile.names.back());
    profile.layers.push_back(layer_from(object));
    object.require_no_others({kDeferredBytes});
  }
}

/// A layer of another model. It has sizes, and cannot run.
class PlaceholderLayer final : public Module {
 public:
  /// Passes on `floats` numbers per image, [n, floats].
  PlaceholderLayer(std::int64_t parameters, std::int64_t floats) : floats_(floats) {
    if (parameters > 0) {
      add_parameter("weight", Shape{parameters}, Init::constant(0));
    }
  }
  Tensor forward(const Tensor& /*x*/) override { throw Error("the layer is only known by its profile and cannot run"); }
  Shape output_shape(const Shape& input) const override { return {input[0], floats_}; }

 private:
  std::int64_t floats_;
};

}  // namespace

ModelProfile profile_of(const Settings& settings, const Sequential& model, std::int64_t microbatch,
                        std::vector<LayerProfile> layers) {
  ModelProfile profile{.model = settings.training.model,
                       .device = settings.world.device.text(),
                       .microbatch = microbatch,
                       .sizes = sizes_in(settings),
                       .layers = std::move(layers)};
  for (int i = 0; i < model.size(); ++i) {
    profile.names.push_back(model.name(i));
  }
  return profile;
}

std::string to_json(const ModelProfile& profile) {
  Json json{{"model", profile.model}, {"device", profile.device}, {"microbatch", profile.microbatch}};
  for (const auto& [key, size] : profile.sizes) {
    json[key] = size;
  }
  for (std::size_t i = 0; i < profile.layers.size(); ++i) {
    Json layer{{"name", profile.names[i]}};
    for_each_cost(profile.layers[i], [&](const char* key, const auto& value) { layer[key] = value; });
    json["layers"].push_back(layer);
  }
  return json.dump(2) + "\n";
}

ModelProfile profile_from_json(const std::string& text, const std::string& where) {
  const Json json = parse_json<Json>(text, where, "--profile --out writes a profile");
  JsonObject object(json, where);
  ModelProfile profile{.model = object.name("model"),
                       .device = object.either("device", "cpu", "cuda"),
                       .microbatch = object.whole("microbatch", 1, kMaxBatchSize, " of images")};
  std::vector<std::string> sizes;
  for (const auto& [key, ignored] : sizes_in({})) {
    sizes.push_back(key);
    if (object.has(key)) {
      profile.sizes.emplace_back(key, object.whole(key, 0, kMaxSize, ""));
    }
  }
  const Json& layers = object.take("layers", "a list of layers");
  object.require_no_others(sizes);
  add_layers(layers, where, profile);
  return profile;
}

std::string mismatch(const ModelProfile& profile, const Settings& settings, const Sequential& model) {
  const std::string& name = settings.training.model;
  if (profile.model != name) {
    return fmt::format("it is for model {0} with {1} layers, the run has {2} with {3}; give --model {0}", profile.model,
                       profile.names.size(), name, model.size());
  }
  const auto sizes = sizes_in(settings);
  for (const auto& [key, size] : profile.sizes) {
    const auto other = std::find_if(sizes.begin(), sizes.end(), [&](const auto& each) { return each.first == key; });
    if (other->second != size) {
      return fmt::format("its layers were measured with {0} {1}, the run has {2}; give --{3}{1}", key, size,
                         other->second, key == "tp" ? "mesh tp=" : key + " ");
    }
  }
  if (static_cast<int>(profile.names.size()) != model.size()) {
    return fmt::format("it has {} layers, model {} has {}; give the sizes of its model, such as --depth",
                       profile.names.size(), name, model.size());
  }
  for (int i = 0; i < model.size(); ++i) {
    if (profile.names[static_cast<std::size_t>(i)] != model.name(i)) {
      return fmt::format("its layer {} is '{}', that of model {} is '{}'; correct the name", i,
                         profile.names[static_cast<std::size_t>(i)], name, model.name(i));
    }
  }
  if (profile.device != settings.world.device.text()) {
    return fmt::format("its layers were measured on {0}, the run uses {1}; give --device {0}", profile.device,
                       settings.world.device.text());
  }
  return "";
}

std::shared_ptr<Sequential> placeholder_model(const ModelProfile& profile) {
  constexpr auto kFloat = static_cast<std::int64_t>(sizeof(float));
  auto model = std::make_shared<Sequential>();
  for (std::size_t i = 0; i < profile.layers.size(); ++i) {
    const LayerProfile& layer = profile.layers[i];
    const std::int64_t per_float = kFloat * profile.microbatch;  // bytes of one number of each image
    model->add(profile.names[i], std::make_shared<PlaceholderLayer>(layer.parameter_bytes / kFloat,
                                                                    (layer.output_bytes + per_float - 1) / per_float));
  }
  return model;
}

}  // namespace stagecoach
