#include "parallel/pipeline/passed_on.h"

#include "core/autograd/grad_mode.h"
#include "core/base/throw_if.h"

namespace stagecoach {

void require_passed_on(int stage, Sequential& layers, const Tensor& x, const Tensor& output, const Shape& expected,
                       DType type) {
  if (output.dtype() == type && output.shape() == expected) {
    return;
  }
  const NoGrad no_grad;
  Tensor y = x;
  for (const auto& [name, layer] : layers.children()) {
    const Tensor next = layer->forward(y);
    const Shape said = layer->output_shape(y.shape());
    throw_if<Error>(next.shape() != said,
                    "layer '{}': expected the output {} that its output_shape returns for an input {}, got {} from its "
                    "forward; correct its output_shape",
                    name, to_string(said), to_string(y.shape()), to_string(next.shape()));
    y = next;
  }
  throw Error(fmt::format(
      "pipeline: expected stage {} to pass on {}{}, got {}; split the model after a layer whose output is {} with one "
      "row per sample",
      stage, name_of(type), to_string(expected), describe(output), name_of(type)));
}

}  // namespace stagecoach
