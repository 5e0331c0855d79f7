#pragma once
/// @file
/// The layers of a model and what they cost, as a JSON file (docs/reference/profile.md): `--profile --out DIR` writes
/// DIR/profile.json, and `--profile-file` reads it instead of measuring.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "chapters/common/settings.h"
#include "nn/sequential.h"
#include "parallel/pipeline/layer_profile.h"

namespace stagecoach {

/// What a profile file holds.
struct ModelProfile {
  std::string model;            ///< as --model names it
  std::string device;           ///< as --device names it
  std::int64_t microbatch = 0;  ///< images per micro-batch
  /// What else determines the layers, such as {"depth", 6}: flags without dashes, and "tp", the tensor-parallel ranks
  /// that share each layer. A file may leave them out.
  std::vector<std::pair<std::string, std::int64_t>> sizes = {};
  std::vector<std::string> names = {};    ///< [layers]
  std::vector<LayerProfile> layers = {};  ///< [layers]
};

/// Returns the profile of `model`, whose `layers` were measured for `settings` with `microbatch` images.
ModelProfile profile_of(const Settings& settings, const Sequential& model, std::int64_t microbatch,
                        std::vector<LayerProfile> layers);

/// Returns the text of a profile file.
std::string to_json(const ModelProfile& profile);
/// Reads the text of a profile file. Throws DataError, which names `where`, the layer and the key, for a text that is
/// not JSON, a key that is missing or unknown, and a value of the wrong type or out of range.
ModelProfile profile_from_json(const std::string& text, const std::string& where);

/// Returns how the profile differs from `model` and from what `settings` say of it, and what to do: "it is for …, the
/// run …; give …"; "" if it does not. The size of the micro-batches is not compared.
std::string mismatch(const ModelProfile& profile, const Settings& settings, const Sequential& model);

/// Returns layers of the profile's names and sizes that cannot be run, to plan a model that does not exist here. They
/// pass on `output_bytes` rounded up to whole floats per image.
std::shared_ptr<Sequential> placeholder_model(const ModelProfile& profile);

}  // namespace stagecoach
