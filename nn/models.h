#pragma once
/// @file
/// The models that the chapters train, by name. Each is a Sequential, which a pipeline can split into stages.
///
/// | name       | input            | parameters (10 classes) | what it is                                      |
/// |------------|------------------|-------------------------|-------------------------------------------------|
/// | `toy`      | [N, 4]           | 44 (2 outputs)          | linear, relu, linear: small enough to print     |
/// | `convnet`  | [N, 3, 32, 32]   | 62,006                  | two convolutions and three linear layers        |
/// | `resnet18` | [N, 3, 32, 32]   | 11,173,962              | He et al. 2015 in its form for small images     |
/// | `resnet50` | [N, 3, 64, 64]   | 23,528,522              | He et al. 2015 with bottlenecks                 |

#include <memory>
#include <string>
#include <vector>

#include "nn/sequential.h"

namespace stagecoach {

struct ModelSettings {
  bool softmax_head = false;     ///< end in probabilities (a layer named softmax) in place of logits
  std::int64_t classes = 10;     ///< outputs; toy always has two
  std::int64_t image_size = 32;  ///< height and width of the images; toy has none
};

std::vector<std::string> model_names();

/// Returns a new model, without memory. Throws UsageError for an unknown name (listing the known ones), for settings
/// that the model does not support, and for a softmax head on toy, which predicts numbers, not classes.
std::shared_ptr<Sequential> make_model(const std::string& name, const ModelSettings& settings = {});

/// Returns the image size that a model is designed for.
std::int64_t default_image_size(const std::string& name);

}  // namespace stagecoach
